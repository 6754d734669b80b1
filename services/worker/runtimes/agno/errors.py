"""Failures of Agno runs, told without what a provider or a prompt said."""

from typing import Any

from agno.exceptions import InputCheckError, ModelProviderError, OutputCheckError

from domain.runtime import RuntimeFailed

_CHECKS = ("input_check_error", "output_check_error")


def told(error: BaseException | None, event: Any) -> RuntimeFailed:
    """The failure of the turn: `error` is what the model's request ended with, `event` what Agno made of it."""
    kind = str(getattr(event, "error_type", None) or "")
    text = getattr(event, "content", None) or getattr(event, "error", None)
    if kind in _CHECKS or isinstance(error, InputCheckError | OutputCheckError):
        return RuntimeFailed("input_refused", str(text or error)[:300])
    if isinstance(error, ModelProviderError):
        status = error.status_code
        return RuntimeFailed(
            "model_error",
            f"{type(error).__name__}: the model {error.model_id or ''} answered with status {status}.",
            retryable=status == 429 or status >= 500,
        )
    if error is not None:
        return RuntimeFailed("agent_error", type(error).__name__)
    return RuntimeFailed("agent_error", kind or "The agent failed.")
