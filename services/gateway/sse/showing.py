"""What viewers are shown of a session's open items, and the search for what is missing of them."""

import asyncio
from asyncio import Task
from collections.abc import Iterable

import structlog

from services.gateway.sse import frames
from services.gateway.sse.fanout import FanOut
from services.gateway.sse.live import WATCHED, Frame, LiveFrames, Shown
from services.gateway.sse.meter import Meter
from services.gateway.sse.open_item import Room
from services.gateway.sse.ports import OpenItems, OpenItemsUnavailable, chunk_of
from services.gateway.sse.replays import Spawn

_log = structlog.get_logger(__name__)

_AGAIN_AFTER = (0.02, 0.1)
"""Seconds before the second and the third look for what is open."""


class LiveShow:
    """Temporary frames go to `out` in the order in which they may be seen. `open_items`: who else knows what is open;
    it is asked where something may have been missed, one task at most."""

    __slots__ = (
        "_early",
        "_live",
        "_meter",
        "_open_items",
        "_out",
        "_reading",
        "_session_id",
        "_spawn",
        "_unsure",
    )

    def __init__(
        self, session_id: str, out: FanOut, room: Room, open_items: OpenItems | None, spawn: "Spawn", meter: Meter
    ) -> None:
        self._session_id = session_id
        self._out = out
        self._live = LiveFrames(room)
        self._open_items = open_items
        self._spawn = spawn
        self._meter = meter
        self._early: list[tuple[Frame, bytes]] = []
        self._unsure = True
        self._reading: Task[None] | None = None

    def observe(self, type_: str, turn_id: str | None, envelope: bytes) -> None:
        """A committed event, in its place."""
        if type_ in WATCHED:
            self._live.observe(type_, turn_id, envelope)

    def show(self, frame: Frame, raw: bytes) -> None:
        """A temporary frame, in its place."""
        shown = self._live.admit(frame, raw, self._out.tick)
        self._show(shown)
        if shown and frame.type == "item.snapshot":
            self._meter.healed["roll_up"] += 1
        if self._live.hole:
            self._live.hole = False
            self._read()

    def keep_early(self, taken: list[tuple[Frame, bytes]]) -> None:
        """Frames from before the feed began: their items may be completed in what is behind it, so they are shown only
        where the next look finds that they are open."""
        self._early = taken

    def for_joiner(self) -> bytes | None:
        """A chunk with everything open, for somebody who has seen none of it."""
        shown = self._live.for_joiner()
        return chunk_of(b"".join([frames.live(one.type, one.frame) for one in shown])) if shown else None

    def doubt(self) -> None:
        """Something may have been missed: look when a head tells that a turn is active."""
        self._unsure = True

    def forget(self) -> None:
        """Events went by that were not observed."""
        self._live.forget()
        self._unsure = True

    def settle(self, *, active: bool) -> None:
        """A head was read after whatever there was to doubt."""
        if self._unsure:
            self._unsure = False
            if active:
                self._read()

    def stop(self) -> None:
        """Keep nothing."""
        self._live.forget()
        if self._reading is not None:
            self._reading.cancel()

    def _show(self, shown: Iterable[Shown]) -> None:
        for tick, type_, raw in shown:
            self._out.frame(tick, frames.live(type_, raw))

    def _read(self) -> None:
        if self._open_items is not None and self._reading is None:
            self._reading = self._spawn(self._read_open_items(self._open_items))

    async def _read_open_items(self, source: OpenItems) -> None:
        """Close holes by what others kept. A frame may not have been kept yet a moment after it was published, hence
        the repeats; what is missing then waits for the next roll-up or the completion."""
        try:
            for pause in (0.0, *_AGAIN_AFTER):
                await asyncio.sleep(pause)
                early, self._early = self._early, []
                shown = self._live.merge(await source.read(self._session_id, early), self._out.tick)
                self._show(shown)
                self._meter.healed["open_items"] += bool(shown)
                if self._live.whole:
                    return
        except OpenItemsUnavailable:
            # A broker that was away tells of a gap when it is back; one that was merely slow tells nothing, and an item
            # that is silent is rolled up no more. The next head asks again.
            self._unsure = True
        except Exception:  # noqa: BLE001 - root of a task: viewers wait for the completion
            _log.exception("open items unknown", session_id=self._session_id)
        finally:
            self._reading = None
            self._early = []
