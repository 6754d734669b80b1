"""The fold of a turn's texts into messages, against one that keeps every item's text."""

import random
from typing import NamedTuple

import pytest

from domain.events.item import ItemCompleted, ItemFrames, ItemSuperseded
from domain.ids import EnqueueSequence, Micros, Sequence, TurnId
from domain.message import Message, TurnMessages
from domain.parts import TextPart
from domain.ports import AppliedEvent

TURN = TurnId("0192f3c1-0000-7000-8000-000000000001")
FRAMES = ItemFrames(runs=[], cuts=[])


class Said(NamedTuple):
    """An item of the simple fold."""

    item_id: str
    part: str
    text: str
    partial: bool


def applied(number: int, data: ItemCompleted | ItemSuperseded) -> AppliedEvent:
    return AppliedEvent(Sequence(number), "e", TURN, Micros(number), data)


def drawn(dice: random.Random) -> list[ItemCompleted | ItemSuperseded]:
    events: list[ItemCompleted | ItemSuperseded] = []
    for name in dice.sample("abcdefgh", 8):
        events.append(
            ItemCompleted(
                attempt=1,
                frame=1,
                frames=FRAMES,
                kind="text",
                item_id=name,
                message_id=dice.choice("mn"),
                text="".join(dice.choices("xyé𝄞", k=dice.randrange(5))),
                partial=dice.random() < 0.2,
                continues=dice.choice([None, *"abcdefgh"]),
            )
        )
        if dice.random() < 0.2:
            events.append(ItemSuperseded(item_ids=dice.sample("abcdefgh", 2), attempt=1))
    return events


def parts(said: list[Said]) -> list[TextPart]:
    joined: dict[str, str] = {}
    for one in said:
        joined[one.part] = joined.get(one.part, "") + one.text
    return [TextPart(text) for text in joined.values()]


@pytest.mark.parametrize("dice", range(300))
def test_messages_are_their_items_in_order_whatever_continues_what(dice: int) -> None:
    events = drawn(random.Random(dice))
    fold = TurnMessages(TURN, EnqueueSequence(1), [])
    simple: dict[str, list[Said]] = {}
    for number, event in enumerate(events, 1):
        fold.apply(applied(number, event))
        if isinstance(event, ItemSuperseded):
            for name, said in simple.items():
                simple[name] = [one for one in said if one.item_id not in event.item_ids]
        else:
            said = simple.setdefault(event.message_id or "", [])
            place = next((one.part for one in said if one.item_id == event.continues), event.item_id)
            said.append(Said(event.item_id, place, event.text or "", event.partial))
    for name, said in simple.items():
        message: Message = next(m for m in fold.messages.values() if m.message_id == name)
        if said:
            assert message.parts == parts(said)
            assert message.status == ("partial" if any(one.partial for one in said) else "complete")
            assert [entry.item_id for entry in message.items] == [one.item_id for one in said]
        else:
            assert message.status == "superseded"


def test_a_text_that_grows_at_its_end_is_not_taken_apart() -> None:
    """Of a text in 80 items: nothing but its parts' text is made anew, so what was said is never cut again."""
    fold = TurnMessages(TURN, EnqueueSequence(1), [])
    before = None
    for number in range(80):
        name = f"i{number}"
        fold.apply(
            applied(
                number,
                ItemCompleted(
                    attempt=1,
                    frame=1,
                    frames=FRAMES,
                    kind="text",
                    item_id=name,
                    message_id="m",
                    text="x" * 16 * 1024,
                    continues=before,
                ),
            )
        )
        before = name
    (message,) = fold.messages.values()
    (part,) = message.parts
    assert isinstance(part, TextPart)
    assert len(part.text) == 80 * 16 * 1024
