"""One leg of an Agno component's turn, from its start, its pause or its last checkpoint to its end."""

import asyncio
import contextlib
import copy
import time
from collections.abc import Callable
from typing import Any

from agno.models.message import Message
from agno.run.base import RunStatus

from domain import frames
from domain.parts import input_text
from domain.runtime import Execution, RuntimeFailed
from services.worker.runtimes.agno import answers, errors
from services.worker.runtimes.agno.copies import copied, stream
from services.worker.runtimes.agno.events import fitting, prefixed
from services.worker.runtimes.agno.files import Media
from services.worker.runtimes.agno.hooks import AgnoHooks
from services.worker.runtimes.agno.journal import Stored, read
from services.worker.runtimes.agno.options import options
from services.worker.runtimes.agno.runs import Conductor, Run
from services.worker.runtimes.agno.store import OUTPUTS, Kind, TurnStore, new_run, past_journals, past_runs, session_row
from services.worker.runtimes.outlet import Outlet

_GOODBYE_SECONDS = 0.5
"""What Agno's own clean-up gets after an interrupt."""


class AgnoLoop:
    """Runs in a task of its own; what Agno does runs in another, so that an interrupt can end it at any await."""

    def __init__(
        self, component: Any, kind: Kind, execution: Execution, outlet: Outlet, hooks: AgnoHooks, media: Media
    ) -> None:
        """`media`: the files that come with the input."""
        self._kind: Kind = kind
        self._execution = execution
        self._journal = read(execution.messages)
        self._conductor = Conductor(execution, outlet, self._journal, hooks.strip)
        self._store = TurnStore(execution.session_id)
        self._made = copied(component, self._conductor, self._store)
        self._top = Run(self._conductor, "", execution.turn_id, None, {}, kind)
        self._failure: Any = None
        self._hooks = hooks
        self._media = media
        hooks.strip(component, self._made)

    async def run(self) -> None:
        """To the end, a pause, an error or an interrupt."""
        if self._journal.ended is not None:
            # The worker died between the last checkpoint and the end.
            await self._end()
            return
        self._check_steps()
        self._fill_store()
        if self._journal.pauses > len(self._execution.pauses):
            await self._ask(self._from_store())
            return
        released = asyncio.Event()
        loop = asyncio.get_running_loop()
        work = asyncio.create_task(self._work(), name=f"agno {self._execution.turn_id}")

        def stop() -> None:
            work.cancel()
            loop.call_later(_GOODBYE_SECONDS, released.set)

        self._execution.interrupt.on_request(stop)
        waiting = asyncio.create_task(released.wait())
        try:
            await asyncio.wait((work, waiting), return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
            work.cancel()
            for task in list(self._conductor.tasks):
                task.cancel()
        if self._execution.interrupt.requested and (not work.done() or work.cancelled()):
            await self._cut_off()
            return
        if work.cancelled():
            raise RuntimeFailed("agent_error", "The agent cancelled itself.")
        try:
            work.result()
        except Exception:
            await self._cut_off()
            raise

    @property
    def _forks(self) -> bool:
        """The run begins with another one's messages."""
        return self._execution.forked and self._kind != "workflow"

    def _check_steps(self) -> None:
        """A workflow has no place inside a step to go on from."""
        if any(not step.idempotent for step in self._journal.steps):
            raise RuntimeFailed(
                "outcome_unknown", "A step was running when its worker stopped, and is not declared idempotent."
            )

    def _fill_store(self) -> None:
        execution = self._execution
        journals = past_journals(execution.past)
        now = int(time.time())
        row = session_row(self._kind, self._made, execution.session_id, journals, now)
        past = past_runs(self._kind, self._made, execution.session_id, execution.past, journals)
        if self._forks:
            # The source's messages are the beginning of this run, not its history.
            source = journals.pop()
            past = [run for run in past if run["run_id"] != execution.past[-1].turn_id]
            self._conductor.skipped = len(source.transcript)
        stored = self._journal.paused
        if stored is not None:
            row.update({key: value for key, value in stored.session.items() if value is not None})
        self._store.fill(row, past, [] if stored is None else stored.runs)

    async def _work(self) -> None:
        if not (execution := self._execution).messages and execution.attempt == 1:
            for name in self._hooks.told:
                for part in ("PreHookStarted", "PreHookCompleted"):
                    step = prefixed(self._kind, part)
                    await self._conductor.emit(frames.StepReported(name=step, payload={"pre_hook_name": name}))
        async for event in stream(self._top, self._start()):
            name = str(getattr(event, "event", ""))
            if getattr(event, "run_id", None) == self._top.run_id and name.endswith(("RunError", "WorkflowError")):
                self._failure = event
        output = self._top.output or self._from_store()
        if self._failure is not None and (output is None or output.status != RunStatus.completed):
            raise errors.told(self._top.error, self._failure)
        if output is None:
            raise RuntimeFailed("agent_error", "The run ended without a result.")
        if output.status == RunStatus.paused:
            await self._paused(output)
        elif output.status == RunStatus.error:
            raise errors.told(self._top.error, None)
        elif output.status == RunStatus.cancelled:
            await self._stopped(output)
        else:
            await self._ended(output)

    def _start(self) -> Callable[[], Any]:
        """How this leg begins."""
        execution, made = self._execution, self._made
        common = options(execution, self._kind)
        common |= {"stream": True, "stream_events": True, "session_id": execution.session_id}
        if self._kind != "workflow":
            common["yield_run_output"] = True
        if execution.pauses and self._journal.paused is not None:
            return self._continued(common)
        text = input_text(execution.input)
        if self._forks:
            return self._forked(common, text)
        return lambda: made.arun(input=text, run_id=execution.turn_id, **common, **self._media)

    def _continued(self, common: dict[str, Any]) -> Callable[[], Any]:
        """From the rows of the last pause, with people's answers."""
        made, run = self._made, self._from_store()
        if run is None:
            raise RuntimeFailed("agent_error", "The paused run is gone.")
        given = answers.by_call(self._execution.pauses)
        if self._kind == "workflow":
            answers.answer_workflow(run, given, self._conductor.items)
            return lambda: made.acontinue_run(run, stream=True, stream_events=True)
        requirements = answers.answer_run(run, given, self._conductor.items)
        keep = ("stream", "stream_events", "session_id", "yield_run_output", "dependencies", "metadata")
        rest = {key: value for key, value in common.items() if key in keep}
        if self._kind == "team":
            return lambda: made.acontinue_run(run_response=run, requirements=requirements, **rest)
        return lambda: made.acontinue_run(run_response=run, **rest)

    def _forked(self, common: dict[str, Any], text: str) -> Callable[[], Any]:
        """The model goes on from the source's messages, whether or not the agent reads a history."""
        execution, made = self._execution, self._made
        source = read(execution.past[-1].messages)
        run = new_run(self._kind, made, execution.session_id, execution.turn_id, text)
        run.status = RunStatus.running
        told = [*([source.system] if source.system is not None else []), *source.transcript]
        run.messages = [Message.from_dict({**message, "from_history": False}) for message in told]
        if text or self._media:
            run.messages.append(Message(role="user", content=text, **self._media))
        self._journal.system = source.system
        keep = ("stream", "stream_events", "session_id", "yield_run_output", "dependencies", "metadata")
        rest = {key: value for key, value in common.items() if key in keep}
        return lambda: made.acontinue_run(run_response=run, **rest)

    def _from_store(self) -> Any:
        for row in self._store.rows()[1]:
            if row.get("run_id") == self._execution.turn_id:
                # `from_dict` takes what it is given apart, also inside.
                return OUTPUTS[self._kind].from_dict(copy.deepcopy(row))
        return None

    async def _paused(self, output: Any) -> None:
        entry = self._top.entry(self._messages(output), stored=self._top.stored(self._store), ended="pause")
        await self._conductor.emit(self._conductor.checkpoint(entry, "pause"))
        await self._ask(output)

    async def _ask(self, output: Any) -> None:
        ask = answers.of_workflow if self._kind == "workflow" else answers.of_run
        await self._conductor.emit(frames.Paused(requirements=ask(output, self._conductor.items)))

    async def _ended(self, output: Any) -> None:
        messages = self._messages(output)
        await self._top.settle([message.to_dict() for message in messages])
        text = _text(output)
        if text and text != self._conductor.said:
            await self._say(text)
        await self._tell("SessionState", getattr(output, "session_state", None) or self._store.state())
        metrics = getattr(output, "metrics", None)
        await self._tell("RunMetrics", None if metrics is None else metrics.to_dict())
        entry = self._top.entry(messages, stored=self._bare(), ended="end", output=text)
        await self._conductor.emit(self._conductor.checkpoint(entry, "end"))
        self._journal.add(entry)
        await self._end()

    async def _stopped(self, output: Any) -> None:
        """A rejected step has cancelled its workflow, or a tool its run."""
        messages = self._messages(output)
        await self._top.settle([message.to_dict() for message in messages])
        text = _text(output)
        if text and self._kind == "workflow":
            await self._say(text)
        entry = self._top.entry(messages, stored=self._bare(), ended="stopped")
        await self._conductor.emit(self._conductor.checkpoint(entry, "interrupted"))
        self._journal.add(entry)
        await self._end()

    async def _end(self) -> None:
        ended = self._journal.ended
        done = frames.Stopped() if ended == "stopped" else frames.Completed(output=self._journal.output)
        await self._conductor.emit(done)

    async def _tell(self, name: str, payload: Any) -> None:
        if payload:
            await self._conductor.emit(frames.StepReported(name=name, payload=fitting(payload)))

    async def _say(self, text: str) -> None:
        """What no model streamed: the result of a step's function, a parsed answer."""
        item_id = self._execution.new_id()
        await self._conductor.emit(frames.ItemStarted(item_id=item_id, kind="text"))
        await self._conductor.emit(frames.ItemDelta(item_id=item_id, text=text))
        await self._conductor.emit(frames.ItemEnded(item_id=item_id))

    async def _cut_off(self) -> None:
        """Keep what there is: the next turn's model sees it, with open calls closed."""
        entry = self._top.entry(self._top.unfinished(), stored=self._bare(), ended="interrupted")
        if entry.transcript or self._kind == "workflow":
            await self._conductor.emit(self._conductor.checkpoint(entry, "interrupted"))

    def _bare(self) -> Stored:
        """The rows without the messages that the transcript has."""
        stored = self._top.stored(self._store)
        own = self._execution.turn_id
        runs = [
            {key: value for key, value in run.items() if key != "messages"} if run.get("run_id") == own else run
            for run in stored.runs
        ]
        return Stored(session=stored.session, runs=runs)

    def _messages(self, output: Any) -> list[Any]:
        if self._kind != "workflow":
            return list(output.messages or [])
        said = [Message(role="user", content=input_text(self._execution.input))]
        text = _text(output)
        return [*said, Message(role="assistant", content=text)] if text else said


def _text(output: Any) -> str | None:
    """The answer as text; JSON where it is no text."""
    content = output.content
    if content is None or isinstance(content, str):
        return content
    with contextlib.suppress(Exception):
        return str(output.get_content_as_string())
    return str(content)
