"""An Agno model that says what it is told, without a network."""

import itertools
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec
from agno.metrics import MessageMetrics
from agno.models.base import Model
from agno.models.message import Message
from agno.models.response import ModelResponse

_numbers = itertools.count()

Call = tuple[str, dict[str, Any]]
Said = str | list[Call] | Exception


@dataclass
class Script(Model):
    """Which of its answers comes next is read from the messages, as with a real model: the n-th after the last word of
    a user. So who asks again gets the same answer again, and `asked` tells. Copies share it."""

    id: str = "script"
    name: str | None = "Script"
    provider: str | None = "Tests"
    says: tuple[Said, ...] = ()
    asked: list[list[tuple[str, str]]] = field(default_factory=list)
    """What it was asked with, request by request: roles and texts."""
    repeats: bool = False
    """Its calls have the same ids in each answer, as with some providers."""

    def __deepcopy__(self, memo: dict[int, Any]) -> "Script":
        return self

    async def ainvoke_stream(self, *args: Any, **rest: Any) -> AsyncIterator[ModelResponse]:
        messages: list[Message] = rest["messages"]
        self.asked.append([(message.role, str(message.content or "")) for message in messages])
        said = self._next(messages)
        if isinstance(said, Exception):
            yield ModelResponse(role="assistant", content="half ")
            raise said
        if isinstance(said, str):
            for word in said.split(" "):
                yield ModelResponse(role="assistant", content=word + " ")
            yield ModelResponse(response_usage=MessageMetrics(input_tokens=3, output_tokens=2, total_tokens=5))
            return
        calls = [
            {
                "id": f"call_{number}" if self.repeats else f"call_{next(_numbers)}",
                "type": "function",
                "function": {"name": name, "arguments": msgspec.json.encode(arguments).decode()},
            }
            for number, (name, arguments) in enumerate(said)
        ]
        yield ModelResponse(role="assistant", tool_calls=calls)

    def _next(self, messages: list[Message]) -> Said:
        answered = 0
        for message in reversed(messages):
            if message.role == "user":
                break
            answered += message.role == "assistant"
        return self.says[answered]

    async def ainvoke(self, *args: Any, **rest: Any) -> ModelResponse:
        whole = ModelResponse(role="assistant", content="")
        async for piece in self.ainvoke_stream(*args, **rest):
            whole.content = str(whole.content or "") + str(piece.content or "")
            whole.tool_calls += piece.tool_calls
        return whole

    def invoke(self, *args: Any, **rest: Any) -> ModelResponse:
        raise NotImplementedError

    def invoke_stream(self, *args: Any, **rest: Any) -> Iterator[ModelResponse]:
        raise NotImplementedError

    def _parse_provider_response(self, response: Any, **rest: Any) -> ModelResponse:
        raise NotImplementedError

    def _parse_provider_response_delta(self, response: Any) -> ModelResponse:
        raise NotImplementedError
