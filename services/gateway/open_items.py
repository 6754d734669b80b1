"""Open items of a session: what the broker keeps of them, without what the store has by now."""

from collections.abc import Sequence as Many

from domain.errors import SessionNotFound, Unavailable
from domain.ids import SessionId
from infra.nats.live import LiveReader, LiveUnavailable
from services.gateway.agent_client import AgentClient
from services.gateway.sse.live import UNREADABLE, Frame, decode_frame
from services.gateway.sse.ports import OpenItemsUnavailable


class StoredOpenItems:
    """Implements `sse.ports.OpenItems`: LIVE first, the agent service second, so that what was completed meanwhile is
    left out. One request each, the second only where there is something to ask about."""

    def __init__(self, reader: LiveReader, agent: AgentClient) -> None:
        self._reader = reader
        self._agent = agent

    async def read(self, session_id: str, early: Many[tuple[Frame, bytes]]) -> list[tuple[Frame, bytes]]:
        try:
            kept = await self._reader.open_frames(SessionId(session_id))
        except LiveUnavailable as error:
            raise OpenItemsUnavailable from error
        found = [(frame, one.frame) for one in kept if (frame := _frame(one.frame)) is not None]
        found += early
        items = {frame.data.item_id for frame, _ in found if frame.data.item_id is not None}
        if not items:
            return []
        try:
            running = await self._agent.open_items(session_id, sorted(items))
        except (SessionNotFound, Unavailable) as error:
            raise OpenItemsUnavailable from error
        if running is None:
            return []
        completed, answered = set(running.completed), set(running.answered)
        return [
            (frame, raw)
            for frame, raw in found
            if frame.turn_id == running.turn_id
            and frame.data.attempt == running.attempt
            and frame.data.item_id not in (answered if frame.type == "tool.progress" else completed)
        ]


def _frame(raw: bytes) -> Frame | None:
    try:
        return decode_frame(raw)
    except UNREADABLE:
        return None
