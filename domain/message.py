"""A Message and how events change it: what people read, folded from a session's events.

The user's message is the accepted input (id: the event id of its `turn.queued`, ordinal 0). Assistant messages come
from completed text items by their `message_id`, with ordinals 1, 2, 3 … in the order of their first appearance in the
turn.
"""

from typing import Literal

import msgspec

from domain.clock import rfc3339
from domain.events import item, turn
from domain.ids import EnqueueSequence, MessageId, Micros, Sequence, TurnId
from domain.parts import Part, TextPart
from domain.ports import AppliedEvent

Role = Literal["user", "assistant"]
MessageStatus = Literal["complete", "partial", "superseded"]


class MessageItem(msgspec.Struct, frozen=True, omit_defaults=True):
    """Which stretch of a part an item gave: `length` code points, in the order of the items. `part` is the item that
    began the part; an item that goes on with another's text shares it."""

    item_id: str
    part: str
    length: int
    partial: bool = False


class Message(msgspec.Struct, kw_only=True):
    """One message of a session. `parts` of an assistant are text."""

    message_id: MessageId
    turn_id: TurnId
    enqueue_sequence: EnqueueSequence
    ordinal: int
    role: Role
    parts: list[Part]
    status: MessageStatus
    first_sequence: Sequence
    last_sequence: Sequence
    created_at: Micros
    items: list[MessageItem] = []


def user_message(event: AppliedEvent, queued: turn.TurnQueued, turn_id: TurnId) -> Message:
    """The message that an accepted input is."""
    return Message(
        message_id=MessageId(event.event_id),
        turn_id=turn_id,
        enqueue_sequence=EnqueueSequence(queued.enqueue_sequence),
        ordinal=0,
        role="user",
        parts=list(queued.input),
        status="complete",
        first_sequence=event.sequence,
        last_sequence=event.sequence,
        created_at=Micros(event.created_at),
    )


class TurnMessages:
    """The messages of one turn, folded event by event. `touched` are those that changed since it was made."""

    def __init__(self, turn_id: TurnId, enqueue_sequence: EnqueueSequence, messages: list[Message]) -> None:
        self.turn_id = turn_id
        self.enqueue_sequence = enqueue_sequence
        self.messages = {message.message_id: message for message in messages}
        self.touched: dict[MessageId, Message] = {}

    def apply(self, event: AppliedEvent) -> None:
        """Events that no message shows change nothing."""
        match event.data:
            case turn.TurnQueued():
                self._touch(user_message(event, event.data, self.turn_id), event)
            case item.ItemCompleted(kind="text", message_id=str()):
                self._add(event, event.data)
            case item.ItemSuperseded():
                self._remove(event, frozenset(event.data.item_ids))
            case turn.TurnSuperseded():
                for message in self.messages.values():
                    message.status = "superseded"
                    self._touch(message, event)

    def _touch(self, message: Message, event: AppliedEvent) -> None:
        message.last_sequence = event.sequence
        self.messages[message.message_id] = self.touched[message.message_id] = message

    def _add(self, event: AppliedEvent, done: item.ItemCompleted) -> None:
        message_id = MessageId(done.message_id or "")
        message = self.messages.get(message_id)
        if message is None:
            message = Message(
                message_id=message_id,
                turn_id=self.turn_id,
                enqueue_sequence=self.enqueue_sequence,
                ordinal=max((m.ordinal for m in self.messages.values()), default=0) + 1,
                role="assistant",
                parts=[],
                status="complete",
                first_sequence=event.sequence,
                last_sequence=event.sequence,
                created_at=Micros(event.created_at),
            )
        elif message.status == "superseded":
            message.items = []
            message.parts = []
        text = done.text or ""
        if not message.items:  # as almost always: it begins with this item
            message.items = [MessageItem(done.item_id, done.item_id, len(text), done.partial)]
            message.parts = [TextPart(text)]
            message.status = "partial" if done.partial else "complete"
            self._touch(message, event)
            return
        before = {entry.item_id: entry.part for entry in message.items}
        part = before.get(done.continues or "", done.item_id)
        entry = MessageItem(done.item_id, part, len(text), done.partial)
        if done.item_id not in before and _append(message, entry, text):
            self._touch(message, event)
            return
        texts = _texts(message)
        message.items = [*message.items, entry]
        _rebuild(message, {**texts, done.item_id: text})
        self._touch(message, event)

    def _remove(self, event: AppliedEvent, gone: frozenset[str]) -> None:
        for message in self.messages.values():
            left = [entry for entry in message.items if entry.item_id not in gone]
            if len(left) == len(message.items):
                continue
            if left:
                texts = _texts(message)
                message.items = left
                _rebuild(message, texts)
            else:
                message.status = "superseded"
            self._touch(message, event)


def _append(message: Message, entry: MessageItem, text: str) -> bool:
    """Put an item at the end, where it goes on with the last part or begins one: nothing that is there already is taken
    apart. False where it belongs elsewhere."""
    if entry.part == entry.item_id:
        message.parts = [*message.parts, TextPart(text)]
    elif entry.part == _parts(message)[-1] and isinstance(last := message.parts[-1], TextPart):
        message.parts = [*message.parts[:-1], TextPart(last.text + text)]
    else:
        return False
    message.items = [*message.items, entry]
    if entry.partial:
        message.status = "partial"
    return True


def _parts(message: Message) -> list[str]:
    """What began each part, in their order."""
    return list(dict.fromkeys(entry.part for entry in message.items))


def _texts(message: Message) -> dict[str, str]:
    """Item id -> its text, cut out of the parts again."""
    whole: dict[str, str] = {}
    for part_id, part in zip(_parts(message), message.parts, strict=True):
        whole[part_id] = part.text if isinstance(part, TextPart) else ""
    found: dict[str, str] = {}
    begins = dict.fromkeys(whole, 0)
    for entry in message.items:
        end = begins[entry.part] + entry.length
        found[entry.item_id] = whole[entry.part][begins[entry.part] : end]
        begins[entry.part] = end
    return found


def _rebuild(message: Message, texts: dict[str, str]) -> None:
    joined: dict[str, list[str]] = {}
    for entry in message.items:
        joined.setdefault(entry.part, []).append(texts[entry.item_id])
    message.parts = [TextPart("".join(pieces)) for pieces in joined.values()]
    message.status = "partial" if any(entry.partial for entry in message.items) else "complete"


class MessageView(msgspec.Struct, kw_only=True):
    """A message as the API shows it (docs/api.md)."""

    message_id: str
    turn_id: str
    role: str
    parts: msgspec.Raw
    status: str
    first_sequence: int
    last_sequence: int
    ordinal: int
    created_at: str


def view(
    *,
    message_id: str,
    turn_id: str,
    role: str,
    parts: bytes,
    status: str,
    first_sequence: int,
    last_sequence: int,
    ordinal: int,
    created_at: Micros,
) -> MessageView:
    """A stored message for a client; `parts` pass through as bytes."""
    return MessageView(
        message_id=message_id,
        turn_id=turn_id,
        role=role,
        parts=msgspec.Raw(parts),
        status=status,
        first_sequence=first_sequence,
        last_sequence=last_sequence,
        ordinal=ordinal,
        created_at=rfc3339(created_at),
    )
