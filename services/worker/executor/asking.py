"""What a paused turn asks, made into what the log can keep and read back for ever."""

from collections.abc import Callable, Sequence

import msgspec

from domain.clock import parse_rfc3339
from domain.parts import Requirement
from domain.runtime import RuntimeFailed
from services.worker.executor.values import plain


def askable(requirements: Sequence[Requirement], new_id: Callable[[], str]) -> list[Requirement]:
    """The requirements with safe text and plain JSON, each with an item: what is asked about no call gets a fresh one,
    so that its answer can be told from one to an earlier question under the same id. Structs do not check what they
    are made of: a wrong kind or time that came into the log would make the turn unreadable. Raises RuntimeFailed."""
    asked = [_askable(requirement, new_id) for requirement in requirements]
    if len({requirement.tool_call_id for requirement in asked}) < len(asked):
        raise RuntimeFailed("agent_error", "A pause has two requirements for one tool call.")
    return asked


def _askable(requirement: Requirement, new_id: Callable[[], str]) -> Requirement:
    try:
        made = msgspec.convert(plain(requirement, "a requirement"), Requirement)
    except msgspec.ValidationError as error:
        place = str(error).rpartition(" - at ")[2]
        raise RuntimeFailed(
            "agent_error", f"A requirement of a pause has not the documented shape at {place}"
        ) from None
    if made.expires_at is not None:
        try:
            parse_rfc3339(made.expires_at)
        except ValueError:
            raise RuntimeFailed(
                "agent_error", "expires_at of a requirement is no time with an offset, such as 2026-01-31T12:00:00Z."
            ) from None
    return msgspec.structs.replace(made, answer=None, item_id=made.item_id or new_id())
