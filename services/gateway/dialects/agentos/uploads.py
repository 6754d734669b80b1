"""Files that come with a message. None are taken yet: they are refused in the words for a type that is not known."""

from litestar.datastructures import UploadFile

from domain.parts import FilePart
from services.gateway.deps import GatewayDeps
from services.gateway.dialects.agentos.answers import Refused


async def kept(deps: GatewayDeps, files: list[UploadFile]) -> list[FilePart]:
    """The parts that name these files. Raises Refused where there are any."""
    if files:
        raise Refused(400, "Unsupported file type")
    return []
