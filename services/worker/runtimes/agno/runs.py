"""The runs of one execution: the turn's own, and those of members and steps inside it."""

import asyncio
import hashlib
import itertools
import uuid
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Literal

from agno.models.message import Message
from agno.tools.function import Function

from domain import frames
from domain.parts import Scope
from domain.runtime import Execution, RecordedCall
from services.worker.executor.tool_results import cut
from services.worker.executor.values import plain
from services.worker.runtimes.agno import events
from services.worker.runtimes.agno.declared import is_idempotent
from services.worker.runtimes.agno.journal import Answered, Entry, Journal, Step, Stored, called, encode
from services.worker.runtimes.outlet import Outlet

current: ContextVar["Run | None"] = ContextVar("turnlog_agno_run", default=None)
"""The run in whose code this is. Agno starts tools and members in tasks of its own, which inherit it."""

calling: ContextVar[str] = ContextVar("turnlog_agno_call", default="")
"""The item of the tool call in whose tool this is."""

_SYSTEM = ("system", "developer")
_WAITING = " requires human input before continuing."
_ASKING = ("get_user_input", "ask_user")


class Conductor:
    """What the runs of an execution share."""

    def __init__(
        self, execution: Execution, outlet: Outlet, journal: Journal, strip: Callable[[Any, Any], None]
    ) -> None:
        """`strip`: takes the hooks that we run from a copy, given what it is a copy of."""
        self.strip = strip
        self.execution = execution
        self.outlet = outlet
        self.journal = journal
        self.items: dict[str, dict[str, str]] = {} if journal.paused is None else dict(journal.paused.items)
        """Items of tool calls, by run id and call id."""
        self.tasks: set[asyncio.Task[Any]] = set()
        """Tasks in which members run: they end with the execution."""
        self.kept = len(journal.transcript)
        self.skipped = 0
        """Messages at the beginning of the turn's own run that belong to the turn it was forked from."""
        self.checkpoints = 0
        """How many this leg has made."""
        self.idempotent_steps: set[str] = set()
        """Ids of a workflow's steps that may run again."""
        self.said: str | None = None
        """The last whole text of any run."""
        self._ordinals: dict[str, int] = {}

    def key_of(self, parent: "Run", name: str) -> str:
        """The same for the same run in every attempt: which of the runs of this name it is that this call of this
        parent has begun. Calls whose results are recorded begin none again, so runs are counted call by call."""
        key = f"{parent.key}/{calling.get()}:{name}"
        ordinal = self._ordinals[key] = self._ordinals.get(key, 0) + 1
        return key if ordinal == 1 else f"{key}.{ordinal}"

    def run_id_of(self, key: str) -> str:
        """The id that Agno calls a member's run by: the same in every attempt."""
        return str(uuid.uuid5(uuid.UUID(self.execution.turn_id), key))

    def checkpoint(
        self, entry: Entry, reason: Literal["tool_batch", "pause", "interrupted", "end"], scope: Scope | None = None
    ) -> frames.Checkpoint:
        """The frame that keeps an entry."""
        self.kept += len(entry.transcript)
        self.checkpoints += 1
        return frames.Checkpoint(reason=reason, message_index=self.kept, private=encode(entry), scope=scope)

    async def emit(self, *made: frames.RuntimeFrame) -> None:
        """One frame, or several that are appended together."""
        if made:
            await self.outlet.emit(made[0] if len(made) == 1 else frames.Together(frames=made))


class Run:
    """One run of an agent, a team or a workflow: who speaks, and which of its requests and calls the log knows."""

    def __init__(
        self, conductor: Conductor, key: str, run_id: str, scope: Scope | None, base: dict[str, Any], kind: str
    ) -> None:
        """`base`: fields that all its events have for AgentOS clients and that nobody else knows."""
        self.kind = kind
        self.functions: dict[str, Function] = {}
        """What its model may call."""
        self.conductor = conductor
        self.key = key
        self.run_id = run_id
        self.scope = scope
        self.base = base
        self.answered = conductor.journal.answered.get(key, {})
        self.quiet = bool(self.answered) or (kind == "workflow" and scope is None and bool(conductor.journal.steps))
        """What happens now is in the log already."""
        self.error: BaseException | None = None
        """What the last model request ended with."""
        self.output: Any = None
        self.partial = ""
        """The text of an unfinished response."""
        self.messages: list[Any] = []
        """What its model was last asked with; Agno adds to it what follows."""
        self._results: dict[str, tuple[str, bool]] = {}
        self._started_before = [step.key for step in conductor.journal.steps] if kind == "workflow" else []
        self._requests = 0
        self._done: set[str] = set()

    @property
    def own(self) -> bool:
        """The turn's own run."""
        return self.scope is None

    @property
    def items(self) -> dict[str, str]:
        """Items of its tool calls, by call id."""
        return self.conductor.items.setdefault(self.run_id, {})

    def next_request(self) -> tuple[int, Answered | None]:
        """The number of the next request, and its answer where the log has it."""
        number = self._requests
        self._requests += 1
        known = self.answered.get(number)
        if known is None or (not known.items and number + 1 not in self.answered):
            self.quiet = False
        return number, known

    def recorded(self, item_id: str) -> RecordedCall | None:
        """The call as the log has it, if it has a final result."""
        known = self.conductor.execution.recorded.get(item_id)
        return known if known is not None and known.output is not None else None

    def new_item(self, call_id: str) -> str:
        """A fresh item for a call."""
        item_id = self.conductor.execution.new_id()
        self.items[call_id] = item_id
        self._done.discard(item_id)
        return item_id

    def may_repeat(self, name: str) -> bool:
        """The tool of that name is declared idempotent."""
        return name in self.functions and is_idempotent(self.functions[name])

    def needs(self, name: str) -> Literal["approval", "input", "external"] | None:
        """What the tool of that name asks of people before it runs."""
        function = self.functions.get(name)
        if function is None:
            return "input" if name in _ASKING else None
        if function.requires_confirmation:
            return "approval"
        if function.requires_user_input or name in _ASKING:
            return "input"
        return "external" if function.external_execution else None

    async def resulted(self, call_id: str, text: str, *, is_error: bool = False, private: bytes | None = None) -> None:
        """A tool has its result; told once."""
        item_id = self.items.get(call_id)
        if item_id is None or item_id in self._done or _waits(text):
            return
        self._done.add(item_id)
        self._results[call_id] = (text, is_error)
        if self.recorded(item_id) is None:
            await self.conductor.emit(
                frames.ToolResulted(
                    item_id=item_id,
                    tool_call_id=call_id,
                    output=text,
                    is_error=is_error,
                    private=private,
                    scope=self.scope,
                )
            )

    async def settle(self, messages: list[dict[str, Any]]) -> None:
        """Results that never passed the gate: refusals, answers from outside, unknown tools, generators."""
        for message in messages:
            call_id = message.get("tool_call_id")
            if message.get("role") == "tool" and call_id:
                content = message.get("content")
                text = content if isinstance(content, str) else str(content or "")
                await self.resulted(call_id, text, is_error=bool(message.get("tool_call_error")))

    async def after_batch(self, messages: list[Any]) -> None:
        """The next request is about to be made: what it is made of is a place to resume from, and to fork at."""
        told = [message.to_dict() for message in messages]
        await self.settle(told)
        if not self.own:
            return
        entry = self._transcript(told)
        if self._requests and len(entry.transcript) and not called(told):
            await self.conductor.emit(self.conductor.checkpoint(entry, "tool_batch"))

    def _transcript(self, told: list[dict[str, Any]]) -> Entry:
        """What of these messages the journal does not have yet."""
        mine = [m for m in told if not m.get("from_history") and m.get("role") not in _SYSTEM]
        mine = list(itertools.takewhile(lambda m: not _waits(m.get("content")), mine))
        system = next((m for m in told if m.get("role") in _SYSTEM), None)
        journal = self.conductor.journal
        new = mine[self.conductor.skipped + self.conductor.kept :]
        if journal.system is not None or system is None:
            return Entry(transcript=new)
        journal.system = system
        return Entry(transcript=new, system=system)

    def entry(self, messages: list[Any], **fields: Any) -> Entry:
        """An entry with the transcript up to here, for the turn's own run."""
        made = self._transcript([m if isinstance(m, dict) else m.to_dict() for m in messages]) if self.own else Entry()
        return Entry(transcript=made.transcript, system=made.system, **fields)

    def unfinished(self) -> list[dict[str, Any]]:
        """The messages of a run that was cut off, with what its tools gave and its model said by then."""
        told: list[dict[str, Any]] = [message.to_dict() for message in self.messages]
        for call_id in called(told):
            if call_id in self._results:
                text, failed = self._results[call_id]
                message = Message(role="tool", tool_call_id=call_id, content=text, tool_call_error=failed)
                told.append(message.to_dict())
        if self.partial:
            told.append(Message(role="assistant", content=self.partial).to_dict())
        return told

    async def step_started(self, event: Any) -> None:
        """A step of a workflow is about to run: it does so when the log says it."""
        key = str(event.step_id or event.step_name)
        if self._started_before:
            if key in self._started_before:
                self._started_before.remove(key)
            self.quiet = bool(self._started_before)
            return
        self.quiet = False
        conductor = self.conductor
        name, payload = events.step(event, own=self.own, base=self.base) or ("StepStarted", {})
        entry = Entry(step=Step(key=key, idempotent=key in conductor.idempotent_steps))
        await conductor.emit(
            frames.StepReported(name=name, payload=plain(payload, "a step"), scope=self.scope),
            conductor.checkpoint(entry, "tool_batch", Scope(component="workflow", id=key, run_id=self.run_id)),
        )
        await conductor.execution.gate.kept(conductor.checkpoints)

    async def report(self, event: Any) -> None:
        """What Agno says of this run, as far as it is not told by items and tools."""
        if getattr(event, "event", None) == "StepStarted" and self.kind == "workflow" and self.own:
            await self.step_started(event)
            return
        call = events.finished_call(event)
        if call is not None:
            await self.resulted(call.tool_call_id or "", str(call.result or ""), is_error=bool(call.tool_call_error))
        if self.quiet:
            return
        step = events.step(event, own=self.own, base=self.base)
        if step is not None:
            name, payload = step
            await self.conductor.emit(
                frames.StepReported(name=name, payload=plain(payload, f"the payload of {name}"), scope=self.scope)
            )

    def cut(self, text: str) -> str:
        """A tool's result as everybody gets it."""
        return cut(text, self.conductor.execution.tool_result_bytes).text

    def stored(self, store: Any) -> Stored:
        """The rows of the turn, without what came before it."""
        session, runs = store.rows()
        return Stored(session=session, runs=runs, items=dict(self.conductor.items))


def _waits(text: Any) -> bool:
    """Agno's placeholder for the result of a delegation whose member asks people; it is replaced when they answered."""
    return isinstance(text, str) and text.startswith("Member '") and text.endswith(_WAITING)


def digest(value: Any) -> str:
    """Short name of an input."""
    return hashlib.sha256(repr(value).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def in_run(run: Run, work: Callable[[], Any]) -> Any:
    """Call something as that run."""
    token = current.set(run)
    try:
        return work()
    finally:
        current.reset(token)
