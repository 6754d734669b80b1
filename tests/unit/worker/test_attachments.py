"""Files of an input as each kind of agent gets them; the log's private parts have their names, never their content."""

import base64
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import pytest
from agno.agent import Agent as AgnoAgent
from agno.media import File
from agno.models.message import Message
from agno.models.response import ModelResponse
from pydantic_ai import Agent
from pydantic_ai.messages import BinaryContent, ModelMessage, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from domain.parts import FilePart
from services.worker.hooks.declared import hooked
from services.worker.hooks.hook import resolved
from services.worker.runtimes.agno import AgnoRuntime
from services.worker.runtimes.callable import CallableRuntime
from services.worker.runtimes.pydantic_ai import PydanticAIRuntime
from tests.support.agno_script import Script
from tests.support.execution import Bench
from tests.support.shelf import Shelf
from tests.unit.worker.test_unpack_archives import zipped
from turnlog import HookRun, TextPart, ToolCall, ToolResult, Turn, unpack_archives

CONTENT = b"\x89PNG what is in the picture " * 50


def nowhere(bench: Bench, content: bytes) -> None:
    """Neither as it is nor in base64, from the first whole group of it."""
    encoded = base64.b64encode(content[:300])[:300]
    for event in bench.store.events:
        for held in (event.payload, event.private or b""):
            assert content[:50] not in held
            assert encoded not in held


class Words:
    """A pydantic-ai model that keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[list[ModelMessage]] = []

    async def stream(self, history: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        self.asked.append(list(history))
        yield "seen"

    def files(self, number: int) -> list[Any]:
        """Of the request with that number: what its prompts have beside text they begin with."""
        prompts = [part for message in self.asked[number] for part in message.parts if isinstance(part, UserPromptPart)]
        return [list(prompt.content)[1:] for prompt in prompts if not isinstance(prompt.content, str)]


async def test_an_async_generator_reads_them_and_finds_them_in_its_history() -> None:
    shelf = Shelf()
    part = shelf.put(CONTENT, "a.png", "image/png")
    seen: list[Any] = []

    async def reader(turn: Turn) -> AsyncGenerator[Any, Any]:
        known = [await turn.read(file) for message in turn.history for file in message.files]
        seen.append(([await turn.read(file) for file in turn.files], known))
        yield "ok"

    b = Bench(CallableRuntime(reader), attachments=shelf)
    for files in ([part], []):
        assert b.store.types(await b.turn("look", *files))[-1] == "turn.completed"
    assert seen == [([CONTENT], []), ([], [CONTENT])]
    nowhere(b, CONTENT)


async def test_without_a_place_to_read_from_the_turn_fails() -> None:
    async def reader(turn: Turn) -> AsyncGenerator[Any, Any]:
        yield str(await turn.read(turn.files[0]))

    b = Bench(CallableRuntime(reader))
    turn = await b.turn("look", FilePart("00" * 32, "text/plain", "a", 1))
    (failed,) = b.store.data(turn, "turn.failed")
    assert failed.error.message == "Attachments cannot be read here."


async def test_a_pydantic_ai_model_gets_their_content_now_and_in_later_turns() -> None:
    words, shelf = Words(), Shelf()
    part = shelf.put(CONTENT, "a b/ü.png", "image/png")
    agent = Agent(FunctionModel(stream_function=words.stream))
    b = Bench(PydanticAIRuntime(agent), attachments=shelf)
    for files in ([part], []):
        assert b.store.types(await b.turn("look", *files))[-1] == "turn.completed"
    for number in (0, 1):
        (given,) = words.files(number)
        assert [(one.data, one.media_type) for one in given if isinstance(one, BinaryContent)] == [
            (CONTENT, "image/png")
        ]
    nowhere(b, CONTENT)
    # What is more than an execution may load is named, and left out.
    shelf.all_bytes = len(CONTENT) + 10
    await b.turn("and this", shelf.put(b"new" * 5, "new.txt", "text/plain"))
    assert words.files(2) == [
        [f"[The file {part.name} is left out here.]"],
        [BinaryContent(b"new" * 5, media_type="text/plain")],
    ]


class Watching(Script):
    """Keeps the media of the messages that it was asked with."""

    def __init__(self, *says: Any) -> None:
        super().__init__(says=says)
        self.media: list[list[Any]] = []

    def _of(self, message: Message) -> list[Any]:
        return [*(message.images or []), *(message.audio or []), *(message.files or [])]

    async def ainvoke_stream(self, *args: Any, **rest: Any) -> AsyncIterator[ModelResponse]:
        messages: list[Message] = rest["messages"]
        self.media.append(
            [(type(one).__name__, one.content, one.mime_type) for message in messages for one in self._of(message)]
        )
        async for piece in super().ainvoke_stream(*args, **rest):
            yield piece


async def test_an_agno_agent_gets_media_by_kind_now_and_in_later_turns() -> None:
    model, shelf = Watching("seen"), Shelf()
    files = [shelf.put(CONTENT, "a.png", "image/png"), shelf.put(b"# hello" * 30, "b.md", "text/markdown")]
    agent = AgnoAgent(id="x", model=model, add_history_to_context=True)
    b = Bench(AgnoRuntime(agent, "x"), attachments=shelf)
    for given in (files, []):
        turn = await b.turn("look", *given)
        assert b.store.types(turn)[-1] == "turn.completed", b.store.data(turn, "turn.failed")
    expected = [("Image", CONTENT, "image/png"), ("File", b"# hello" * 30, "text/markdown")]
    assert model.media == [expected, expected]
    for content in (CONTENT, b"# hello" * 30):
        nowhere(b, content)
    # More than may be loaded is left out, the newest stay.
    shelf.all_bytes = 210
    await b.turn("look")
    assert model.media[2] == expected[1:]


async def test_what_an_agno_hook_makes_of_the_files_is_recorded() -> None:
    model, shelf = Watching("seen"), Shelf()

    def split(run_input: Any) -> None:
        (one,) = run_input.files
        run_input.files = [File(content=half, filename=f"{n}.txt") for n, half in enumerate(one.content.split(b"|"))]

    def look(run_input: Any) -> None:
        assert len(run_input.files) == 2

    runtime = AgnoRuntime(AgnoAgent(id="x", model=model, pre_hooks=[split, look]), "x")
    b = Bench(runtime, hooks=runtime.hooks, attachments=shelf)
    turn = await b.turn("look", shelf.put(b"one|two", "a.txt", "text/plain"))
    (rewritten,) = b.store.data(turn, "turn.input_rewritten")
    assert (rewritten.by, [part.name for part in rewritten.input[1:]]) == ("split", ["0.txt", "1.txt"])
    assert [content for _, content, _ in model.media[0]] == [b"one", b"two"]
    assert b.store.types(turn)[-1] == "turn.completed"


async def test_an_archive_is_unpacked_before_the_agent_and_once() -> None:
    """Recovery, history and a fork take the files as they were recorded."""
    shelf, seen = Shelf(), []

    async def reader(turn: Turn) -> AsyncGenerator[Any, Any]:
        seen.append([(file.name, await turn.read(file)) for file in turn.files])
        yield ToolCall(tool_call_id="c", name="n", idempotent=True)
        yield ToolResult(tool_call_id="c", output="x")
        yield "ok"

    runtime = CallableRuntime(reader)
    b = Bench(runtime, hooks=resolved(hooked(reader, pre=[unpack_archives])), attachments=shelf)
    turn = await b.turn("look", shelf.put(zipped({"a.txt": b"one", "d/b.md": b"two"})))
    (rewritten,) = b.store.data(turn, "turn.input_rewritten")
    assert rewritten.by == "unpack_archives"
    assert seen == [[("a.txt", b"one"), ("d/b.md", b"two")]]
    refused = await b.turn("look", shelf.put(zipped({"../a.txt": b"one"})))
    (failed,) = b.store.data(refused, "turn.failed")
    assert (failed.error.code, failed.error.message) == (
        "input_refused",
        "The archive a.zip has a file whose name leads out of it.",
    )
    assert len(seen) == 1


async def test_a_hook_reads_and_keeps_files() -> None:
    shelf = Shelf()

    async def shout(run: HookRun) -> Any:
        (part,) = [part for part in run.parts if isinstance(part, FilePart)]
        return [TextPart(run.input), await run.keep((await run.read(part)).upper(), name="A", media_type="text/plain")]

    async def reader(turn: Turn) -> AsyncGenerator[Any, Any]:
        yield (await turn.read(turn.files[0])).decode()

    b = Bench(CallableRuntime(reader), hooks=resolved(hooked(reader, pre=[shout])), attachments=shelf)
    turn = await b.turn("look", shelf.put(b"low", "a", "text/plain"))
    assert b.store.data(turn, "turn.completed")[0].output == "LOW"


@pytest.mark.parametrize("kind", ["pydantic_ai", "agno"])
async def test_a_file_that_is_gone_fails_the_turn(kind: str) -> None:
    agents: dict[str, Any] = {
        "pydantic_ai": lambda: PydanticAIRuntime(Agent(FunctionModel(stream_function=Words().stream))),
        "agno": lambda: AgnoRuntime(AgnoAgent(id="x", model=Watching("seen")), "x"),
    }
    b = Bench(agents[kind](), attachments=Shelf())
    turn = await b.turn("look", FilePart("00" * 32, "image/png", "a.png", 1))
    (failed,) = b.store.data(turn, "turn.failed")
    assert failed.error.message == "An attachment of the input is gone."
