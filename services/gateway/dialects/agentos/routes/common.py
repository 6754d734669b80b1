"""What the routes share: their paths, how a handler asks for what it works with, and pages."""

import math
from typing import Annotated, Any

from litestar.di import NamedDependency
from litestar.params import HeaderParameter, QueryParameter

from services.gateway.dialects.agentos.finding import Finder
from services.gateway.dialects.agentos.forms import bounded

Find = NamedDependency[Finder]
"""Handlers ask for it by the name `finder`."""

OPEN = {"open": True}
"""`opt` of a handler that answers whoever asks; all others want a credential before anything is read."""

IdempotencyKey = Annotated[str | None, HeaderParameter(name="Idempotency-Key")]
SessionQuery = Annotated[str | None, QueryParameter(name="session_id")]


def paths(rest: str, *steps: str) -> list[str]:
    """The same path below each kind of component, or those named."""
    return [f"/{step}/{{component_id:str}}{rest}" for step in steps or ("agents", "teams", "workflows")]


def paging(limit: str | None, page: str | None) -> tuple[int, int]:
    """Rows a page, and the page's number. Raises Refused."""
    return bounded("query", "limit", limit, 20, 1, 200), max(bounded("query", "page", page, 1, 0, 10_000), 1)


def paged(rows: list[dict[str, Any]], page: int, limit: int, total: int) -> dict[str, Any]:
    """A page of a list of `total` rows; pages count from 1."""
    meta = {
        "page": page,
        "limit": limit,
        "total_pages": math.ceil(total / limit),
        "total_count": total,
        "search_time_ms": 0.0,
    }
    return {"data": rows, "meta": meta}
