"""Every error Turnlog raises on purpose.

    TurnlogError
    ├── Rejection                 the command or query is refused; nothing was written
    │   ├── NotFound              SessionNotFound, TurnNotFound, AgentNotFound
    │   ├── Conflict              IdempotencyMismatch, SessionBusy, TurnNotCancellable, TurnNotRunning, TurnNotPaused,
    │   │                         TurnNotTerminal, QueueNotPaused, RequirementExpired, AnswerConflict, SessionIdTaken,
    │   │                         TurnIdTaken, AttachmentMissing, NothingToCopy
    │   ├── Invalid               UnknownRequirement, UndecidedAnswer, ForkOutOfRange, BadCursor, IllegalEvents,
    │   │                         Unstorable
    │   ├── TooLarge              InputTooLarge, PayloadTooLarge
    │   ├── QueueFull, TooManyTurns, NotAdmitted
    │   ├── StaleFence            the writer lost its claim: it must stop
    │   └── NothingToClaim
    ├── Unavailable               try again: LockTimeout, StoreUnavailable, AgentUnavailable, MinSequenceTimeout
    │   └── VersionMismatch       this process is too old (or too new) for the data: it must not append
    └── InternalFault             a fault of ours; nothing was written, and it was logged

Errors carry data, not prose: `code` is stable, `fields` are plain JSON values. Only the gateway turns them into
problem+json.
"""

from typing import Any, ClassVar


class TurnlogError(Exception):
    """Root. Subclasses name their data as keyword arguments; `detail` is one English sentence made from them."""

    code: ClassVar[str] = "error"
    sentence: ClassVar[str] = "Something went wrong."

    def __init__(self, **fields: Any) -> None:
        self.fields = fields
        super().__init__(self.detail)

    @property
    def detail(self) -> str:
        return self.sentence.format_map(_Blank(self.fields))


class _Blank(dict[str, Any]):
    def __missing__(self, key: str) -> str:
        return "?"


class Rejection(TurnlogError):
    """Refused: nothing was written, the same command may be refused or accepted later."""


class NotFound(Rejection):
    """No such thing, or not yours: the two are never told apart."""


class SessionNotFound(NotFound):
    code = "session_not_found"
    sentence = "There is no such session."


class TurnNotFound(NotFound):
    code = "turn_not_found"
    sentence = "There is no such turn in this session."


class AgentNotFound(NotFound):
    code = "agent_not_found"
    sentence = "There is no agent named {agent_id}."


class Conflict(Rejection):
    """The state does not allow it."""


class IdempotencyMismatch(Conflict):
    code = "idempotency_mismatch"
    sentence = "This idempotency key was used with another request."


class SessionBusy(Conflict):
    code = "session_busy"
    sentence = "Turn {active_turn_id} is not over yet."


class TurnNotCancellable(Conflict):
    code = "turn_not_cancellable"
    sentence = "The turn is {status}; a running turn is stopped by interrupt."


class TurnNotRunning(Conflict):
    code = "turn_not_running"
    sentence = "The turn is {status}, not running."


class TurnNotPaused(Conflict):
    code = "turn_not_paused"
    sentence = "The turn is {status}, not paused."


class TurnNotTerminal(Conflict):
    code = "turn_not_terminal"
    sentence = "The turn is {status}; only a turn that has ended can be regenerated."


class QueueNotPaused(Conflict):
    code = "queue_not_paused"
    sentence = "The queue is not paused."


class RequirementExpired(Conflict):
    code = "requirement_expired"
    sentence = "The question of tool call {tool_call_id} has expired."


class AnswerConflict(Conflict):
    code = "answer_conflict"
    sentence = "Requirement {tool_call_id} was answered otherwise."


class SessionIdTaken(Conflict):
    code = "session_id_taken"
    sentence = "A session with this id exists with other properties."


class TurnIdTaken(Conflict):
    code = "turn_id_taken"
    sentence = "This session has a turn with the id {external_id} already."


class AttachmentMissing(Conflict):
    """Hand it in (again), then name it."""

    code = "attachment_missing"
    sentence = "The input names an attachment that is not stored."


class NothingToCopy(Conflict):
    code = "nothing_to_copy"
    sentence = "The session has no turn that has ended and still has its content."


class Invalid(Rejection):
    """The request makes no sense for this state."""


class UnknownRequirement(Invalid):
    code = "unknown_requirement"
    sentence = "The turn has no requirement for tool call {tool_call_id}."


class UndecidedAnswer(Invalid):
    code = "undecided_answer"
    sentence = "The answer for tool call {tool_call_id} decides nothing."


class ForkOutOfRange(Invalid):
    code = "fork_out_of_range"
    sentence = "The turn has no place {place} to fork from."


class BadCursor(Invalid):
    code = "bad_cursor"
    sentence = "The cursor is not a sequence."


class IllegalEvents(Invalid):
    code = "illegal_events"
    sentence = "These events cannot follow: {reason}."


class Unstorable(Invalid):
    """The store refused the values of this one command; trying again would not help."""

    code = "unstorable"
    sentence = "The store refused a value of this command ({sqlstate})."


class TooLarge(Rejection):
    """More bytes than the limit, which is named."""


class InputTooLarge(TooLarge):
    code = "input_too_large"
    sentence = "The input has {size} bytes; {limit} are allowed."


class PayloadTooLarge(TooLarge):
    code = "too_large"
    sentence = "The {type} event has {size} bytes; {limit} are allowed."


class QueueFull(Rejection):
    code = "queue_full"
    sentence = "{depth} turns wait in this session already."


class TooManyTurns(Rejection):
    """The user's quota, over all of their sessions."""

    code = "too_many_turns"
    sentence = "{limit} turns of this user have not ended yet; more are accepted when some have."


class NotAdmitted(Rejection):
    """Nothing is known under this key, and the sender said that nothing new may begin."""

    code = "not_admitted"
    sentence = "No new turn may begin now."


class StaleFence(Rejection):
    code = "stale_fence"
    sentence = "Another worker holds this turn now."


class NothingToClaim(Rejection):
    code = "nothing_to_claim"
    sentence = "No turn of this session can start now."


class Unavailable(TurnlogError):
    """Try again with the same key. The outcome of the failed try may be either; the key settles it."""


class LockTimeout(Unavailable):
    code = "lock_timeout"
    sentence = "The session was locked for {seconds} s."


class StoreUnavailable(Unavailable):
    code = "store_unavailable"
    sentence = "The event store cannot be reached."


class AgentUnavailable(Unavailable):
    code = "agent_unavailable"
    sentence = "The agent service cannot be reached."


class MinSequenceTimeout(Unavailable):
    code = "min_sequence_timeout"
    sentence = "Sequence {min_sequence} was not reached in time; the model is at {as_of_sequence}."


class VersionMismatch(Unavailable):
    code = "version_mismatch"
    sentence = "This process has version {have} of {name}, the data needs {need}: it must not write."


class InternalFault(TurnlogError):
    """A fault of ours met this command, and this command only: nothing was written, and what it was is in the log."""

    code = "internal_error"
    sentence = "Something went wrong; it was logged."


def _tree(root: type[TurnlogError]) -> dict[str, type[TurnlogError]]:
    found = {root.code: root} if "code" in vars(root) else {}
    for child in root.__subclasses__():
        found.update(_tree(child))
    return found


BY_CODE: dict[str, type[TurnlogError]] = _tree(TurnlogError)
"""Code -> class: how an error crosses the internal HTTP API and is raised again on the other side."""
