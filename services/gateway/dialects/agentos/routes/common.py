"""What the routes share: their paths, and how a handler asks for what it works with."""

from typing import Annotated

from litestar.di import NamedDependency
from litestar.params import HeaderParameter, QueryParameter

from services.gateway.dialects.agentos.finding import Finder

Find = NamedDependency[Finder]
"""Handlers ask for it by the name `finder`."""

IdempotencyKey = Annotated[str | None, HeaderParameter(name="Idempotency-Key")]
SessionQuery = Annotated[str | None, QueryParameter(name="session_id")]


def paths(rest: str, *steps: str) -> list[str]:
    """The same path below each kind of component, or those named."""
    return [f"/{step}/{{component_id:str}}{rest}" for step in steps or ("agents", "teams", "workflows")]
