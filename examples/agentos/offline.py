"""A model that needs no key and no network and says the same every time, so that the examples run anywhere."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from agno.models.base import Model
from agno.models.message import Message
from agno.models.response import ModelResponse

CITIES = ("Paris", "Kyoto")


@dataclass
class Offline(Model):
    """Answers by what the last user message says and which tools there are; text comes word by word."""

    id: str = "offline"
    name: str = "Offline"
    provider: str = "examples"
    pause: float = 0.02

    async def ainvoke_stream(self, messages: list[Message], **rest: Any) -> AsyncIterator[ModelResponse]:
        answer = _answer(messages, rest.get("tools") or [], rest.get("response_format"))
        if answer.tool_calls:
            yield answer
            return
        for word in re.findall(r"\S+\s*", str(answer.content)):
            await asyncio.sleep(self.pause)
            yield ModelResponse(content=word)

    async def ainvoke(self, messages: list[Message], **rest: Any) -> ModelResponse:
        return _answer(messages, rest.get("tools") or [], rest.get("response_format"))

    def invoke(self, messages: list[Message], **rest: Any) -> ModelResponse:
        return _answer(messages, rest.get("tools") or [], rest.get("response_format"))

    def invoke_stream(self, messages: list[Message], **rest: Any) -> Any:
        yield self.invoke(messages, **rest)

    def _parse_provider_response(self, response: Any, **_: Any) -> ModelResponse:
        return ModelResponse()

    def _parse_provider_response_delta(self, response: Any) -> ModelResponse:
        return ModelResponse()


def _answer(messages: list[Message], tools: list[Any], schema: Any) -> ModelResponse:
    asked = max(number for number, message in enumerate(messages) if message.role == "user")
    prompt = str(messages[asked].content)
    results = [str(message.content) for message in messages[asked:] if message.role == "tool"]
    if schema is not None:
        return _said(json.dumps({"passed": True, "score": 9, "reason": "It answers what was asked."}))
    if results:
        return _said(f"I have found out: {' '.join(results)}")
    names = {tool["function"]["name"] for tool in tools}
    cities = [city for city in CITIES if city in prompt]
    if "get_city_fact" in names and cities and "Do not" not in prompt:
        return _calls("get_city_fact", [{"city": city} for city in cities])
    trip = re.search(r"[Rr]eserve .*trip to (\w+)", prompt)
    if "reserve_trip" in names and trip:
        return _calls("reserve_trip", [{"destination": trip[1]}])
    files = [str(file.filename or file.id) for file in messages[asked].files or []]
    if files:
        return _said(f"You have sent {len(files)} files: {', '.join(sorted(files))}.")
    if "field guide" in prompt:
        return _said(" ".join(f"Chapter {number}: a bird." for number in range(1, 400)))
    return _said(f"This is what an offline model says, word by word, of: {prompt}")


def _said(text: str) -> ModelResponse:
    return ModelResponse(role="assistant", content=text)


def _calls(name: str, each: list[dict[str, Any]]) -> ModelResponse:
    calls = [
        {"id": f"call_{number}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        for number, arguments in enumerate(each)
    ]
    return ModelResponse(role="assistant", tool_calls=calls)
