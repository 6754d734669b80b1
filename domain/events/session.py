"""Events of a session's life and of its queue."""

from typing import ClassVar, Literal

from domain.events.base import Event


class SessionCreated(Event, frozen=True, omit_defaults=True, kw_only=True):
    """Always sequence 1."""

    type: ClassVar[str] = "session.created"

    agent_id: str
    component: Literal["agent", "team", "workflow"]


class QueuePaused(Event, frozen=True, omit_defaults=True, kw_only=True):
    """A turn ended badly while others wait: nothing starts until a resume."""

    type: ClassVar[str] = "session.queue_paused"

    reason: Literal["turn_failed", "turn_interrupted"]


class QueueResumed(Event, frozen=True, omit_defaults=True, kw_only=True):
    """Somebody, or the cancel of the last waiting turn, opened the queue again."""

    type: ClassVar[str] = "session.queue_resumed"

    by: str


class SessionClosed(Event, frozen=True, omit_defaults=True, kw_only=True):
    """Nothing follows but `session.erased` and ends of background hooks."""

    type: ClassVar[str] = "session.closed"

    reason: str


class SessionErased(Event, frozen=True, omit_defaults=True, kw_only=True):
    """Payloads up to that sequence are gone; digests and chain stand."""

    type: ClassVar[str] = "session.erased"

    up_to_sequence: int
