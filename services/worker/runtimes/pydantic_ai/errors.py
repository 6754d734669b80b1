"""Errors of models and of the agent loop, told without what a provider answered or a tool said: that may quote a prompt
or a secret."""

from pydantic_ai.exceptions import AgentRunError, ModelAPIError, ModelHTTPError, UsageLimitExceeded

from domain.runtime import RuntimeFailed


def told(error: AgentRunError) -> RuntimeFailed:
    """The failure of the turn."""
    name = type(error).__name__
    if isinstance(error, ModelHTTPError):
        return RuntimeFailed(
            "model_error",
            f"{name}: the model {error.model_name} answered with status {error.status_code}.",
            retryable=error.status_code == 429 or error.status_code >= 500,
        )
    if isinstance(error, ModelAPIError):
        return RuntimeFailed("model_error", f"{name}: the model {error.model_name} cannot be reached.", retryable=True)
    if type(error) is UsageLimitExceeded:
        # The loop's own words: limits and counts.
        return RuntimeFailed("agent_error", f"{name}: {error.message[:300]}")
    return RuntimeFailed("agent_error", name)
