"""One model response on its way: pydantic-ai's stream events become frames of items."""

from collections.abc import Callable
from typing import Any, Literal

from pydantic_ai.messages import (
    ModelResponse,
    PartDeltaEvent,
    PartEndEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
)

from domain import frames
from services.worker.runtimes.outlet import Outlet


class ResponseStream:
    """Texts and thoughts of one response. Tool calls are told when the response is whole, together with its
    checkpoint."""

    def __init__(self, outlet: Outlet, new_id: Callable[[], str]) -> None:
        self._outlet = outlet
        self._new_id = new_id
        self._open: dict[int, str] = {}

    async def event(self, event: Any) -> None:
        """One event of the stream; kinds that say nothing to a viewer are passed over."""
        match event:
            case PartStartEvent(index=index, part=TextPart() | ThinkingPart() as part):
                await self._end(index)
                item_id = self._open[index] = self._new_id()
                kind: Literal["text", "reasoning"] = "text" if isinstance(part, TextPart) else "reasoning"
                await self._outlet.emit(frames.ItemStarted(item_id=item_id, kind=kind))
                await self._more(index, part.content)
            case PartDeltaEvent(index=index, delta=TextPartDelta() | ThinkingPartDelta() as delta):
                await self._more(index, delta.content_delta)
            case PartEndEvent(index=index):
                await self._end(index)

    async def whole(self, response: ModelResponse) -> None:
        """A response that came in one piece."""
        for index, part in enumerate(response.parts):
            if isinstance(part, TextPart | ThinkingPart):
                await self.event(PartStartEvent(index=index, part=part))
                await self._end(index)

    async def _more(self, index: int, text: str | None) -> None:
        if text and index in self._open:
            await self._outlet.emit(frames.ItemDelta(item_id=self._open[index], text=text))

    async def _end(self, index: int) -> None:
        item_id = self._open.pop(index, None)
        if item_id is not None:
            await self._outlet.emit(frames.ItemEnded(item_id=item_id))
