"""Typed ids and positions.

Ids are UUIDv7 in canonical lower-case text, minted by us; names chosen by callers never reach a table key or a subject.
Numbers that look alike but count different things have different types, so that a checker refuses to mix them.
"""

import re
from typing import NewType

SessionId = NewType("SessionId", str)
TurnId = NewType("TurnId", str)
EventId = NewType("EventId", str)
ItemId = NewType("ItemId", str)
MessageId = NewType("MessageId", str)
WorkerId = NewType("WorkerId", str)
CommandKey = NewType("CommandKey", str)

Sequence = NewType("Sequence", int)
"""Place of an event in its session: 1, 2, 3 … without a gap, permanent. 0 is "before the first"."""

EnqueueSequence = NewType("EnqueueSequence", int)
"""Place of a turn in its session's FIFO queue, 1, 2, 3 … in acceptance order."""

Fence = NewType("Fence", int)
"""Raised by every claim of a session; a writer with a lower fence is refused."""

Attempt = NewType("Attempt", int)
"""Execution attempt of a turn, from 1."""

Ordinal = NewType("Ordinal", int)
"""Number of an executor command within (turn, fence), from 1."""

FrameNumber = NewType("FrameNumber", int)
"""Turn-wide number of a frame; the numbers of attempt n start at n * 2**32, so none is ever used twice."""

Generation = NewType("Generation", int)
"""Version of a session's read-model rows; `sessions` names the serving one."""

Micros = NewType("Micros", int)
"""Microseconds since 1970-01-01T00:00:00Z."""

FRAMES_PER_ATTEMPT = 2**32

START: Sequence = Sequence(0)

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


def is_uuid(text: str) -> bool:
    """True for a UUID in canonical lower-case text, the only spelling we mint and store."""
    return _UUID.fullmatch(text) is not None


def frame_base(attempt: Attempt) -> FrameNumber:
    """First frame number of an attempt: taken by its `turn.started`."""
    return FrameNumber(attempt * FRAMES_PER_ATTEMPT)
