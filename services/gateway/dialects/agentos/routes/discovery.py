"""What can be run here: `/`, `/health`, `/info`, `/config`, and the components of each kind."""

import time
from datetime import UTC, datetime
from importlib.metadata import version

from litestar import Response, get
from litestar.params import FromPath

from services.gateway.dialects.agentos import discovery
from services.gateway.dialects.agentos.answers import json_answer
from services.gateway.dialects.agentos.component import KINDS
from services.gateway.dialects.agentos.forms import HttpRequest
from services.gateway.dialects.agentos.routes.common import OPEN, Find

_STARTED = datetime.fromtimestamp(time.time(), UTC).isoformat().replace("+00:00", "Z")


@get("/", opt=OPEN)
async def home(finder: Find) -> Response[bytes]:
    """Where to look."""
    name = finder.deps.settings.agentos.name
    return json_answer({"name": name, "health": "/health", "info": "/info", "docs": "/docs"})


@get("/health", opt=OPEN)
async def health() -> Response[bytes]:
    """The process runs."""
    return json_answer({"status": "ok", "instantiated_at": _STARTED})


@get("/info", opt=OPEN)
async def info(request: HttpRequest, finder: Find) -> Response[bytes]:
    """How many of each."""
    off = finder.deps.authenticator.off
    name = finder.deps.settings.agentos.name
    return json_answer(discovery.info(name, version("turnlog"), await finder.components(), auth_off=off))


@get("/config")
async def config(request: HttpRequest, finder: Find) -> Response[bytes]:
    """All of them, briefly."""
    finder.deps.authenticator.owner(request)
    return json_answer(discovery.config(finder.deps.settings.agentos.name, await finder.components()))


@get(["/agents", "/teams", "/workflows"])
async def list_components(request: HttpRequest, finder: Find) -> Response[bytes]:
    """Those of one kind."""
    finder.deps.authenticator.owner(request)
    kind = KINDS[str(request.url.path).rstrip("/").rpartition("/")[2]]
    found = [one for one in await finder.components() if one.kind == kind]
    return json_answer([discovery.described(one, full=False) for one in found])


@get(["/agents/{component_id:str}", "/teams/{component_id:str}", "/workflows/{component_id:str}"])
async def get_component(request: HttpRequest, finder: Find, component_id: FromPath[str]) -> Response[bytes]:
    """One of them."""
    finder.deps.authenticator.owner(request)
    return json_answer(discovery.described(await finder.component(request, component_id), full=True))
