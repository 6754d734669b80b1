"""`/healthz`, `/readyz` and `/metrics`: without the secret, and without content."""

from litestar import Response, get

from infra.telemetry.metrics import CONTENT_TYPE
from services.agent.deps import Deps
from services.readiness import failing

# The framework names the charset itself.
_TEXT = CONTENT_TYPE.removesuffix("; charset=utf-8")


@get("/healthz")
async def health() -> dict[str, str]:
    """The process runs."""
    return {"status": "ok"}


@get("/readyz")
async def ready(deps: Deps) -> Response[dict[str, object]]:
    """503 names what keeps this process from serving."""
    faults = await failing(deps.ready)
    status = "failing" if faults else "ok"
    return Response({"status": status, "failing": faults}, status_code=503 if faults else 200)


@get("/metrics")
async def metrics(deps: Deps) -> Response[bytes]:
    """Prometheus text."""
    return Response(deps.metrics.text(), media_type=_TEXT)
