"""What is told of an error in users' code: its type and a short text. Never a stack trace, never a validator's
input."""

from domain.parts import Failure
from domain.runtime import RuntimeFailed
from domain.texts import made_safe

_TEXT_LENGTH = 300


def failure_of(error: BaseException) -> Failure:
    """The failure that a turn ends with."""
    if isinstance(error, RuntimeFailed):
        return Failure(code=error.code, message=made_safe(error.message), retryable=error.retryable)
    return Failure(code="agent_error", message=short(error))


def short(error: BaseException) -> str:
    """`Type: first line`, at most 300 characters. Errors of validators show what they were given, which may be a
    prompt: of them only the type is told."""
    name = type(error).__name__
    if hasattr(error, "errors") or hasattr(error, "body"):
        return name
    lines = str(error).strip().splitlines()
    return made_safe(f"{name}: {lines[0][:_TEXT_LENGTH]}" if lines else name)
