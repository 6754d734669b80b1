"""Runs that begin or go on, and the four ways to wait for them: background or not, stream or not."""

from collections.abc import Callable
from typing import Any

import msgspec
from litestar import Response

from domain.commands import ResumeQueue
from domain.errors import AgentUnavailable, QueueNotPaused
from domain.ids import CommandKey, SessionId
from services.gateway.auth import Access
from services.gateway.dialects.agentos.answers import Refused, json_answer
from services.gateway.dialects.agentos.finding import Finder
from services.gateway.dialects.agentos.forms import Form
from services.gateway.dialects.agentos.objects import run_object
from services.gateway.dialects.agentos.reader import Event, RunReader
from services.gateway.dialects.agentos.streams import RunStream
from services.gateway.dialects.agentos.watch import watching


class Wishes(msgspec.Struct, frozen=True):
    """How the caller wants to be answered."""

    stream: bool
    background: bool
    content_only: bool = False

    @staticmethod
    def of(form: Form) -> "Wishes":
        return Wishes(form.flag("stream", True), form.flag("background", False), not form.flag("stream_events", True))


async def answer(
    finder: Finder,
    access: Access,
    reader: RunReader,
    loaded: list[Event],
    wishes: Wishes,
    *,
    after: int = -1,
    pending: bool = True,
    bare_end: bool = False,
    with_events: bool = False,
) -> Response[Any]:
    """The answer of a create or continue. `after`: the last event index the caller has; `pending`: a background request
    without a stream is answered at once; `bare_end`: a paused workflow's stream ends with its object;
    `with_events`: the object has them."""
    session_id = access.registration.session_id
    if wishes.stream:
        last: Callable[[], bytes] = bytes
        if bare_end and not wishes.background and reader.run.component.kind == "workflow":
            last = lambda: _bare(reader)  # noqa: E731 - said when the stream ends
        return RunStream(
            finder.deps,
            reader,
            session_id,
            loaded,
            after=after,
            guard=finder.guard(access),
            content_only=wishes.content_only,
            last=last,
        ).response()
    if wishes.background and pending:
        return accepted(reader)
    if await _held_up(finder, reader, session_id):
        return accepted(reader, "The run waits behind a paused one")
    if not reader.run.ended():
        async with watching(finder.deps.hub, session_id, reader.cursor) as watch:
            with finder.guard(access)(watch):
                async for _ in reader.follow(watch, finder.deps.hub.limits.comment_seconds):
                    if reader.held_up and reader.run.status == "queued":
                        return accepted(reader, "The run waits behind a paused one")
    if not reader.run.ended():
        # This process ends; with the same key, or by a poll, the caller finds the run.
        raise AgentUnavailable()
    return json_answer(run_object(reader.run, reader.fold.events if with_events else None))


def accepted(reader: RunReader, why: str | None = None) -> Response[bytes]:
    """202: it is in the queue, and will run whatever becomes of the caller."""
    run = reader.run
    said = {"run_id": run.run_id, "session_id": run.session_id, "status": "PENDING"}
    return json_answer(said if why is None else {**said, "message": why}, 202)


async def _held_up(finder: Finder, reader: RunReader, session_id: SessionId) -> bool:
    """It waits for a run that waits for people: nobody knows for how long."""
    if reader.run.status != "queued":
        return False
    head = (await finder.deps.agent.heads([session_id])).heads.get(session_id)
    return head is not None and head.active_status == "paused" and head.chat_status == "human"


def _bare(reader: RunReader) -> bytes:
    if not reader.run.waits:
        return b""
    return b"event: WorkflowRunOutput\ndata: %b\n\n" % msgspec.json.encode(run_object(reader.run))


async def open_queue(finder: Finder, session_id: SessionId, by: str, state: str) -> None:
    """A queue that a failed or interrupted run has paused goes on: AgentOS's callers know of no queue."""
    if state == "paused":
        try:
            await finder.deps.agent.execute(
                ResumeQueue(session_id=session_id, key=CommandKey(finder.deps.ids.uuid7()), by=by)
            )
        except QueueNotPaused:
            return


def conflict(run_id: str, status: str) -> Refused:
    """The run's state does not allow it."""
    return Refused(409, f"Cannot continue run {run_id}: run is {status.lower()}")
