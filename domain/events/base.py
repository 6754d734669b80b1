"""What all events share."""

from typing import ClassVar

import msgspec

from domain.parts import Scope


class Event(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The `data` of one event. Fields at their default are left out of the JSON, unknown ones are ignored on read."""

    type: ClassVar[str]
    schema_version: ClassVar[int] = 1


class ExecutorEvent(Event, frozen=True, omit_defaults=True, kw_only=True):
    """Written by the attempt that executes the turn: says which attempt, which frame of it, and who speaks."""

    attempt: int
    frame: int
    scope: Scope | None = None
