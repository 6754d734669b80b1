"""`GET /`: the page for a browser, one JSON object for everybody else; and the page's scripts and styles under `/page`.

The page is plain modules without a build step and has no inline script or style, so the strict policy below holds.
"""

from importlib.metadata import version
from pathlib import Path

from litestar import MediaType, Request, Response, Router, get
from litestar.datastructures import CacheControlHeader, State
from litestar.static_files import create_static_files_router

DIRECTORY = Path(__file__).resolve().parent.parent / "page"

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:;"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
    "Vary": "Accept",
}
_HTML = (DIRECTORY / "index.html").read_bytes()


@get("/", include_in_schema=False, opt={"public": True})
async def index(request: Request[object, object, State]) -> Response[bytes] | Response[dict[str, str]]:
    """HTML where the client prefers it, JSON otherwise (also for `*/*`, which is what tools send)."""
    if request.accept.best_match([MediaType.JSON, MediaType.HTML]) == MediaType.HTML:
        return Response(_HTML, media_type=MediaType.HTML, headers=_HEADERS)
    about = {"name": "turnlog", "version": version("turnlog"), "api": "/v1", "schema": "/schema"}
    return Response(about, headers={"Vary": "Accept"})


async def _guarded(response: Response[object]) -> Response[object]:
    response.headers.update(_HEADERS)
    return response


def assets() -> Router:
    """The page's static files. A browser asks for them on each load, since their names carry no version."""
    return create_static_files_router(
        path="/page",
        directories=[DIRECTORY],
        cache_control=CacheControlHeader(no_cache=True),
        after_request=_guarded,
        opt={"public": True},
        name="page",
    )
