"""Runs Agno's `Agent`, `Team` and `Workflow` objects."""

from services.worker.runtimes.agno.runtime import AgnoRuntime

__all__ = ["AgnoRuntime"]
