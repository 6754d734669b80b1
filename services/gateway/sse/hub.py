"""All streams of this gateway process: one feed and one subscription per session with local viewers, counted by
reference."""

import asyncio
import random
from asyncio import Future, Task, TaskGroup
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import structlog

from services.gateway.sse import frames
from services.gateway.sse.feed import SessionFeed
from services.gateway.sse.inquiry import Inquiry
from services.gateway.sse.limits import Limits
from services.gateway.sse.meter import Meter
from services.gateway.sse.open_item import Room
from services.gateway.sse.pace import Pace
from services.gateway.sse.pages import Pages
from services.gateway.sse.ports import Agent, OpenItems, SessionHead, Subscriber, Subscription
from services.gateway.sse.replays import Replays
from services.gateway.sse.tail import Tail, Tails
from services.gateway.sse.viewer import Viewer

_log = structlog.get_logger(__name__)


@dataclass(slots=True, eq=False)
class _Held:
    """A feed, how many connections hold it, and its subscription once there is one."""

    feed: SessionFeed
    live: "Future[None]"
    holders: int = 0
    subscription: Subscription | None = None


class Hub:
    """Use as `async with Hub(...)`: its tasks live inside. Everything that must happen when a connection ends is
    synchronous, so a cancelled request cannot leave a subscription behind."""

    def __init__(
        self,
        agent: Agent,
        subscriber: Subscriber,
        limits: Limits | None = None,
        open_items: OpenItems | None = None,
    ) -> None:
        self.agent = agent
        self.limits = limits or Limits()
        self.draining = False
        self.room = Room(self.limits.open_items_bytes)
        """What open items take here."""

        self.meter = Meter()
        self.revoked: Callable[[str], None] | None = None
        """Told that a right to read a session may be gone; without anybody to look, all its streams end."""

        self._subscriber = subscriber
        self._open_items = open_items
        self._sessions: dict[str, _Held] = {}
        self._viewers: set[Viewer] = set()
        self._streams = 0
        self._epoch: int | None = None
        self._tasks = TaskGroup()
        self._running: set[Task[None]] = set()
        pace = Pace(self.limits.heads_burst, self.limits.heads_a_second)
        self.inquiry = Inquiry(agent, self._learn, self.limits.heads_timeout_seconds, pace)
        self.tails = Tails(self.limits.tails_bytes)
        self.replays = Replays(agent, self.limits.pages_in_flight, self.meter)

    async def __aenter__(self) -> "Hub":
        await self._tasks.__aenter__()
        for work in (self.inquiry.run(), self._compare(), self._comment()):
            self.spawn(work)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._farewell(self._viewers)
        for held in list(self._sessions.values()):
            self._stop(held)
        # Those that wait for a broker or an agent service that hangs, too: nobody needs their answers any more.
        for task in list(self._running):
            task.cancel()
        await self._tasks.__aexit__(kind, error, trace)

    @property
    def viewers(self) -> int:
        """Open streams."""
        return len(self._viewers)

    @property
    def sessions(self) -> int:
        """Sessions with a subscription: those with open streams."""
        return len(self._sessions)

    @property
    def full(self) -> bool:
        """The next stream is one too many for this process; those that are just being opened count too."""
        return self._streams >= self.limits.viewers

    @contextmanager
    def feed(self, session_id: str) -> "Iterator[tuple[SessionFeed, Future[None]]]":
        """The session's feed while the block runs, and a future that is done once it is subscribed."""
        held = self._sessions.get(session_id)
        if held is None:
            held = self._start(session_id)
        held.holders += 1
        self._streams += 1
        try:
            yield held.feed, held.live
        finally:
            self._streams -= 1
            held.holders -= 1
            if not held.holders:
                self._stop(held)

    @contextmanager
    def counted(self, viewer: Viewer) -> Iterator[None]:
        """The viewer gets comments and takes part in a drain while the block runs."""
        self._viewers.add(viewer)
        try:
            yield
        finally:
            self._viewers.discard(viewer)

    def check(self, session_id: str, delay: float) -> None:
        """Compare the session with the store after that many seconds, if it still has viewers then."""
        if delay:
            asyncio.get_running_loop().call_later(delay, self.check, session_id, 0.0)
        elif session_id in self._sessions:
            self.inquiry.check((session_id,))

    async def drain(self, seconds: float) -> None:
        """Say farewell to every stream, spread evenly over that time in random order, so that their clients do not
        come back in the same instant somewhere else. Streams that are asked for meanwhile are refused."""
        self.draining = True
        leaving = list(self._viewers)
        random.shuffle(leaving)
        loop = asyncio.get_running_loop()
        start = loop.time()
        for viewer, moment in zip(leaving, moments(len(leaving), seconds), strict=True):
            wait = start + moment - loop.time()
            if wait > 0:
                await asyncio.sleep(wait)
            self.send_on(viewer)
        # Those that were just being answered when the drain began.
        self._farewell(self._viewers)

    def send_on(self, viewer: Viewer) -> None:
        """Farewell to one: its client comes back, here or elsewhere, and goes on where it was."""
        viewer.end(frames.closing("draining", frames.jittered(self.limits.retry_milliseconds)))

    def _told_revoked(self, session_id: str) -> None:
        if self.revoked is not None:
            self.revoked(session_id)
        elif session_id in self._sessions:
            self._sessions[session_id].feed.end_all("revoked")

    def _farewell(self, viewers: Iterable[Viewer]) -> None:
        for viewer in viewers:
            self.send_on(viewer)

    def spawn(self, work: Coroutine[Any, Any, None]) -> Task[None]:
        """A task of this hub's, which does not outlive it."""
        task = self._tasks.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    def _start(self, session_id: str) -> _Held:
        feed = SessionFeed(
            session_id,
            Pages(session_id, self.replays, self.spawn, Tail(self.tails, self.limits.tail_bytes)),
            self.limits,
            self.check,
            self.spawn,
            self._told_revoked,
            self._open_items,
            self.room,
            self.meter,
        )
        held = self._sessions[session_id] = _Held(feed, asyncio.get_running_loop().create_future())
        self.spawn(self._subscribe(held))
        return held

    async def _subscribe(self, held: _Held) -> None:
        feed = held.feed
        # A broker that is stuck: viewers are served by heads and replays meanwhile.
        timer = asyncio.get_running_loop().call_later(self.limits.subscribe_seconds, _settle, held.live)
        try:
            subscription = await self._subscriber.subscribe(feed.session_id, feed)
        except Exception:  # noqa: BLE001 - root of a task: the session is still served, by heads and replays
            _log.exception("no subscription", session_id=feed.session_id)
        else:
            if held.holders > 0:
                held.subscription = subscription
            else:
                subscription.close()
        finally:
            timer.cancel()
            late = held.live.done()
            _settle(held.live)
        if late:
            feed.on_gap()

    def _stop(self, held: _Held) -> None:
        held.holders = 0
        if self._sessions.get(held.feed.session_id) is held:
            del self._sessions[held.feed.session_id]
        held.feed.stop()
        if held.subscription is not None:
            held.subscription.close()
            held.subscription = None

    def _learn(self, session_id: str, head: SessionHead, epoch: int) -> None:
        if self._epoch not in (None, epoch):
            self._forget_all()
        self._epoch = epoch
        held = self._sessions.get(session_id)
        # An answer to a question from before the subscription was live proves nothing.
        if held is not None and held.live.done():
            held.feed.learn(head)

    def _forget_all(self) -> None:
        """The store was restored: it may have lost events that viewers have seen. Clients come back, see the new epoch
        and load anew."""
        for held in self._sessions.values():
            held.feed.end_all("draining")
        self._sessions.clear()

    async def _compare(self) -> None:
        """What heals everything that was lost unnoticed, the broker's absence included."""
        while True:
            await asyncio.sleep(self.limits.heads_seconds)
            self.inquiry.check(self._sessions)

    async def _comment(self) -> None:
        while True:
            await asyncio.sleep(self.limits.comment_seconds / 2)
            self._comment_on_all()

    def _comment_on_all(self) -> None:
        # Apart from the loop that waits, which would keep the last viewer for as long as it does.
        for viewer in list(self._viewers):
            viewer.comment()


def moments(count: int, seconds: float) -> list[float]:
    """So many moments within so many seconds, in order: one in each of as many equal parts, anywhere in it."""
    return [seconds * (number + random.random()) / count for number in range(count)]


def _settle(live: "Future[None]") -> None:
    if not live.done():
        live.set_result(None)
