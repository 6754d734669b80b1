"""Runs a pydantic-ai `Agent`."""

from services.worker.runtimes.pydantic_ai.runtime import PydanticAIRuntime

__all__ = ["PydanticAIRuntime"]
