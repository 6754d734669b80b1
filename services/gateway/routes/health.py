"""`/healthz`, `/readyz` and `/metrics`: for orchestrators and Prometheus; without authentication, without content."""

from litestar import Response, get

from infra.telemetry.metrics import CONTENT_TYPE
from services.gateway import shapes
from services.gateway.deps import Deps
from services.gateway.openapi import described
from services.readiness import failing

# The framework names the charset itself.
_TEXT = CONTENT_TYPE.removesuffix("; charset=utf-8")


@get("/healthz", operation_id="health", operation_class=described({200: shapes.Health}), security=[])
async def health() -> dict[str, object]:
    """The process runs."""
    return {"status": "ok", "failing": {}}


@get("/readyz", operation_id="ready", operation_class=described({200: shapes.Health, 503: shapes.Health}), security=[])
async def ready(deps: Deps) -> Response[dict[str, object]]:
    """This process should get requests; 503 names what keeps it from serving them."""
    faults = await failing(deps.ready)
    status = "failing" if faults else "ok"
    return Response({"status": status, "failing": faults}, status_code=503 if faults else 200)


@get("/metrics", include_in_schema=False)
async def metrics(deps: Deps) -> Response[bytes]:
    """Prometheus text."""
    return Response(deps.metrics.text(), media_type=_TEXT)
