"""The `messages` read model: what people and agents said, in the order (turn, ordinal)."""

from collections.abc import Sequence as Many
from typing import Any

import msgspec

from domain.events.base import Event
from domain.events.item import ItemCompleted, ItemSuperseded
from domain.events.turn import TurnQueued, TurnSuperseded
from domain.ids import Generation, MessageId, SessionId, TurnId
from domain.message import Message, MessageItem, TurnMessages
from domain.parts import Part
from domain.ports import SessionChange, Transaction
from projections.base import queries

_SQL = queries("projections.messages")
_parts = msgspec.json.Decoder(list[Part]).decode
_items = msgspec.json.Decoder(list[MessageItem]).decode
_encode = msgspec.json.Encoder().encode

_CHANGING_OLD = (ItemCompleted, ItemSuperseded, TurnSuperseded)


class Messages:
    """Implements `domain.ports.SessionProjection`."""

    name = "messages"
    version = 1

    async def apply(self, changes: Many[SessionChange], tx: Transaction) -> None:
        """One statement for what was accepted; one more, before it, when items or superseded turns came."""
        folds: dict[tuple[SessionId, TurnId], tuple[Generation, TurnMessages]] = {}
        stored = await self._stored(changes, tx)
        for change in changes:
            for event in change.events:
                if event.turn_id is None or not _shows(event.data):
                    continue
                key = (change.session_id, event.turn_id)
                if key not in folds:
                    subject = change.after[event.turn_id]
                    known = stored.get((change.session_id, subject.enqueue_sequence), [])
                    fold = TurnMessages(event.turn_id, subject.enqueue_sequence, known)
                    folds[key] = (change.generation, fold)
                folds[key][1].apply(event)
        rows = [
            _row(session_id, generation, message)
            for (session_id, _), (generation, fold) in folds.items()
            for message in fold.touched.values()
        ]
        if rows:
            await tx.execute(_SQL["save"], _encode(rows))

    async def _stored(self, changes: Many[SessionChange], tx: Transaction) -> dict[tuple[str, int], list[Message]]:
        """Messages of the turns whose older messages these changes may touch."""
        wanted: dict[tuple[SessionId, TurnId], tuple[SessionId, Generation, int]] = {}
        for change in changes:
            for event in change.events:
                turn_id = event.turn_id
                # A turn that is new in this change has no older messages.
                if turn_id is None or not isinstance(event.data, _CHANGING_OLD) or change.before[turn_id] is None:
                    continue
                if _shows(event.data):
                    place = change.after[turn_id].enqueue_sequence
                    wanted[change.session_id, turn_id] = (change.session_id, change.generation, place)
        found: dict[tuple[str, int], list[Message]] = {}
        if wanted:
            arrays = [list(column) for column in zip(*wanted.values(), strict=True)]
            for row in await tx.fetch(_SQL["of_turns"], *arrays):
                found.setdefault((row["session_id"], row["enqueue_sequence"]), []).append(stored_message(row))
        return found


def _shows(event: Event) -> bool:
    if isinstance(event, ItemCompleted):
        return event.kind == "text" and event.message_id is not None
    return isinstance(event, TurnQueued | ItemSuperseded | TurnSuperseded)


def stored_message(row: Any) -> Message:
    """The message in a row with all columns of the read model."""
    return Message(
        message_id=row["message_id"],
        turn_id=row["turn_id"],
        enqueue_sequence=row["enqueue_sequence"],
        ordinal=row["ordinal"],
        role=row["role"],
        parts=_parts(row["parts"]),
        status=row["status"],
        first_sequence=row["first_sequence"],
        last_sequence=row["last_sequence"],
        created_at=row["created_at"],
        items=[] if row["items"] is None else _items(row["items"]),
    )


class _Row(msgspec.Struct, omit_defaults=True):
    session_id: SessionId
    generation: Generation
    message_id: MessageId
    turn_id: TurnId
    enqueue_sequence: int
    ordinal: int
    role: str
    parts: list[Part]
    status: str
    first_sequence: int
    last_sequence: int
    created_at: int
    items: list[MessageItem] | None = None


def _row(session_id: SessionId, generation: Generation, message: Message) -> _Row:
    return _Row(
        session_id,
        generation,
        message.message_id,
        message.turn_id,
        message.enqueue_sequence,
        message.ordinal,
        message.role,
        message.parts,
        message.status,
        message.first_sequence,
        message.last_sequence,
        message.created_at,
        message.items or None,
    )
