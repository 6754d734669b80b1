"""What is told of an error in users' code: of `turnlog.AgentError` what its author wrote for people, of any other the
type alone. An exception's text is written for developers and may quote anything: a connection's address with its
password, a prompt, a document. Never a stack trace either; the worker's log has the place."""

import turnlog
from domain.parts import Failure
from domain.runtime import RuntimeFailed
from domain.texts import made_safe

_TEXT_LENGTH = 2000


def failure_of(error: BaseException) -> Failure:
    """The failure that a turn ends with."""
    if isinstance(error, RuntimeFailed):
        return Failure(code=error.code, message=made_safe(error.message), retryable=error.retryable)
    retryable = isinstance(error, turnlog.AgentError) and error.retryable
    return Failure(code="agent_error", message=short(error), retryable=retryable)


def short(error: BaseException) -> str:
    """The message of an AgentError, at most 2,000 characters; the name of any other's type."""
    if isinstance(error, turnlog.AgentError):
        return made_safe(error.message[:_TEXT_LENGTH])
    return made_safe(type(error).__name__)


def place_of(error: BaseException) -> str:
    """Where it was raised, as file:line, for the log."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "?" if trace is None else f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
