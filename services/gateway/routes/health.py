"""`/healthz`, `/readyz` and `/metrics`: for orchestrators and Prometheus; without authentication, without content."""

import asyncio

from litestar import Response, get

from infra.telemetry.metrics import CONTENT_TYPE
from services.gateway import shapes
from services.gateway.deps import Check, Deps
from services.gateway.openapi import described

_CHECK_SECONDS = 3.0
# The framework names the charset itself.
_TEXT = CONTENT_TYPE.removesuffix("; charset=utf-8")


@get("/healthz", operation_id="health", operation_class=described({200: shapes.Health}), security=[])
async def health() -> dict[str, object]:
    """The process runs."""
    return {"status": "ok", "failing": {}}


async def _fault(check: Check) -> str | None:
    try:
        async with asyncio.timeout(_CHECK_SECONDS):
            await check()
    except Exception as error:  # noqa: BLE001 - whatever it is, the part does not work
        return type(error).__name__
    return None


@get("/readyz", operation_id="ready", operation_class=described({200: shapes.Health, 503: shapes.Health}), security=[])
async def ready(deps: Deps) -> Response[dict[str, object]]:
    """This process should get requests; 503 names what keeps it from serving them."""
    faults = await asyncio.gather(*(_fault(check) for check in deps.ready.values()))
    failing = {name: fault for name, fault in zip(deps.ready, faults, strict=True) if fault is not None}
    status = "failing" if failing else "ok"
    return Response({"status": status, "failing": failing}, status_code=503 if failing else 200)


@get("/metrics", include_in_schema=False)
async def metrics(deps: Deps) -> Response[bytes]:
    """Prometheus text."""
    return Response(deps.metrics.text(), media_type=_TEXT)
