"""The `search` read model: inputs and texts of agents by the terms they are found by. Nothing superseded is found."""

from collections.abc import Sequence as Many

import msgspec

from domain.events.item import ItemCompleted, ItemSuperseded
from domain.events.turn import TurnQueued, TurnSuperseded
from domain.ids import SessionId
from domain.parts import input_text
from domain.ports import FeedEvent, Transaction
from projections.base import definition, queries
from projections.search.terms import fold, terms

_SQL = queries("projections.search")
_encode = msgspec.json.Encoder().encode


class _Text(msgspec.Struct):
    session_id: str
    sequence: int
    turn_id: str
    item_id: str | None
    role: str
    created_at: int
    content: str
    folded: str
    terms: list[str]


class Search:
    """Implements `domain.ports.FeedProjection`."""

    name = "search"
    version = 1
    tables = ("search_texts",)
    definition = definition("projections.search")
    types = (TurnQueued.type, ItemCompleted.type, ItemSuperseded.type, TurnSuperseded.type)

    async def apply(self, events: Many[FeedEvent], tx: Transaction) -> None:
        """Adds, then removes: what supersedes a text comes after it."""
        texts: list[_Text] = []
        items: list[tuple[str, str, str]] = []
        turns: list[tuple[str, str]] = []
        for event in events:
            data, turn_id = event.data, event.turn_id
            if turn_id is None:
                continue
            match data:
                case TurnQueued():
                    texts.append(_text(event, turn_id, None, "user", input_text(data.input)))
                case ItemCompleted(kind="text", text=str() as content):
                    texts.append(_text(event, turn_id, data.item_id, "assistant", content))
                case ItemSuperseded():
                    items += [(event.session_id, turn_id, item_id) for item_id in data.item_ids]
                case TurnSuperseded():
                    turns.append((event.session_id, turn_id))
        texts = [text for text in texts if text.terms]
        if texts:
            await tx.execute(_SQL["add"], _encode(texts))
        if items:
            await tx.execute(_SQL["remove_items"], *(list(column) for column in zip(*items, strict=True)))
        if turns:
            await tx.execute(_SQL["remove_turns"], *(list(column) for column in zip(*turns, strict=True)))

    async def erase(self, session_id: SessionId, tx: Transaction) -> None:
        """All texts of the session go."""
        await tx.execute(_SQL["erase"], session_id)


def _text(event: FeedEvent, turn_id: str, item_id: str | None, role: str, content: str) -> _Text:
    folded = fold(content)
    return _Text(
        event.session_id, event.sequence, turn_id, item_id, role, event.created_at, content, folded, terms(folded)
    )
