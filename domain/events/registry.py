"""Which struct an event type is read into, and the one JSON encoder and decoder of payloads.

Types this version does not know are kept as `UnknownEvent`, so that an older process can pass on what a newer one
wrote.
"""

from typing import Any, ClassVar

import msgspec

from domain.events import hook, item, session, turn
from domain.events.base import Event
from domain.events.upcasting import upcast


class UnknownEvent(Event, frozen=True):
    """An event of a type or version this process does not know; `raw` is its exact payload."""

    type: ClassVar[str] = ""

    name: str
    version: int
    raw: bytes


EVENT_TYPES: dict[str, type[Event]] = {
    struct.type: struct
    for struct in (
        session.SessionCreated,
        session.QueuePaused,
        session.QueueResumed,
        session.SessionClosed,
        session.SessionErased,
        turn.TurnQueued,
        turn.TurnStarted,
        turn.TurnReleased,
        turn.TurnPaused,
        turn.TurnAnswered,
        turn.TurnContinued,
        turn.InterruptRequested,
        turn.TurnCompleted,
        turn.TurnFailed,
        turn.TurnInterrupted,
        turn.TurnCancelled,
        turn.TurnSuperseded,
        turn.InputRewritten,
        item.ItemCompleted,
        item.ItemSuperseded,
        item.ToolStarted,
        item.ToolResultSnapshot,
        item.CheckpointReached,
        item.RuntimeEvent,
        item.UsageRecorded,
        hook.HookScheduled,
        hook.HookCompleted,
        hook.HookFailed,
    )
}

_encoder = msgspec.json.Encoder()
_decoders: dict[str, msgspec.json.Decoder[Any]] = {name: msgspec.json.Decoder(s) for name, s in EVENT_TYPES.items()}


def encode(event: Event) -> bytes:
    """The exact payload text of an event: compact JSON, UTF-8, fields in declaration order, defaults left out."""
    return _encoder.encode(event)


def decode(type_: str, schema_version: int, payload: bytes) -> Event:
    """The event in that payload, upcast to the newest version. Raises msgspec.ValidationError on a damaged payload."""
    struct = EVENT_TYPES.get(type_)
    if struct is None or schema_version > struct.schema_version:
        return UnknownEvent(name=type_, version=schema_version, raw=payload)
    if schema_version < struct.schema_version:
        payload = upcast(type_, schema_version, struct.schema_version, payload)
    event: Event = _decoders[type_].decode(payload)
    return event
