"""`turnlog rebuild`: a read model anew from event zero, while everything goes on."""

import asyncio
import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from typing import Annotated

import msgspec
from cyclopts import Parameter, validators
from rich.console import Console

from domain.ports import FeedPosition, FeedProjection
from infra.postgres.feed import PostgresFeed
from infra.postgres.feed_slots import PostgresFeedSlots
from infra.postgres.pool import Pool, create_pool
from infra.settings import Settings, load
from projections.serving import session_projections
from services.cli.agent_database import agent_database, database_in_use
from services.cli.failures import FINE, FOUND_WRONG, CannotRun
from services.cli.long_work import run_long
from services.projector.feed_rebuild import FeedRebuild
from services.projector.generations import Left, Target, alone, beside, choose, left, rebuild_pool
from services.projector.projections import all_projections
from services.projector.rebuild_report import Report
from services.projector.session_rebuild import LANES, SessionRebuild

_LOOK_SECONDS = 1.0
_SHOWN = 20
_YIELDING = 5
"""What serves people on the same machine goes first."""


def rebuild(
    name: str,
    *,
    parallel: Annotated[int, Parameter(validator=validators.Number(gte=1, lte=64))] = 1,
    accept: bool = False,
    rollback: bool = False,
    json: bool = False,
    projections: Annotated[tuple[str, ...], Parameter(name="--projection", negative=())] = (),
) -> int:
    """Rebuild a read model from event zero while writes go on, and serve it.

    What was killed goes on where it was when the same command is run again. Rows of the same version must come out as
    they are served: differences are printed, and what differs is not served (exit code 1) unless accepted.

    Parameters
    ----------
    name
        turns, messages, or a feed projection.
    parallel
        Processes, for turns and messages. A feed projection is applied in order, by one.
    accept
        Serve the new rows also where they differ.
    rollback
        Go back to what was served before: of turns and messages the version before is built anew, the previous tables
        of a feed projection catch up first.
    json
        Print one JSON document.
    projections
        Where one's own feed projection is: module:Name (TURNLOG_PROJECTOR_PROJECTIONS).
    """
    settings = load()
    feeding = {one.name: one for one in all_projections(projections or settings.projector.projections)}
    of_sessions = {one.name for one in session_projections()}
    if name not in feeding and name not in of_sessions:
        raise CannotRun(f"there is no read model {name}; known are {', '.join(sorted(of_sessions) + list(feeding))}")
    meter = _Meter(json)
    os.nice(_YIELDING)
    with database_in_use():
        if name in feeding:
            report = run_long(_feed(settings, feeding[name], accept, rollback, meter))
        else:
            report = run_long(_sessions(settings, name, parallel, accept, rollback, meter))
    meter.end()
    _print(name, report, accept, json)
    return FOUND_WRONG if report.refused else FINE


class _Meter:
    """Progress with rate and time left, on standard error: one line in a terminal, else one every now and then."""

    def __init__(self, quiet: bool) -> None:
        self._console = Console(stderr=True)
        self._quiet = quiet
        self._began = time.monotonic()
        self._told = self._began
        self._first: int | None = None

    def show(self, done: int, total: int, unit: str = "events") -> None:
        now = time.monotonic()
        self._first = done if self._first is None else self._first
        if self._quiet or (not self._console.is_terminal and now - self._told < 10 * _LOOK_SECONDS):
            return
        self._told = now
        rate = (done - self._first) / max(now - self._began, 0.001)
        eta = f"{(total - done) / rate:,.0f} s left" if rate > 0 else "no rate yet"
        line = f"{done:,} of {total:,} {unit}, {rate:,.0f}/s, {eta}"
        self._console.print(line, end="\r" if self._console.is_terminal else "\n", highlight=False)

    def end(self) -> None:
        if self._console.is_terminal and not self._quiet:
            self._console.print()


async def _feed(settings: Settings, projection: FeedProjection, accept: bool, rollback: bool, meter: _Meter) -> Report:
    pool = await create_pool(agent_database(settings), size=3)
    try:
        slots = PostgresFeedSlots(pool)
        begun = await slots.place(projection.name, "previous" if rollback else "shadow")
        total = await slots.events_after(FeedPosition())
        done = 0 if begun is None else total - await slots.events_after(begun.at)

        def progress(applied: int) -> None:
            nonlocal done
            done += applied
            meter.show(done, max(total, done))

        work = FeedRebuild(projection, slots, PostgresFeed(pool), batch=settings.projector.batch_events, accept=accept)
        return await (work.back(progress) if rollback else work.run(progress))
    finally:
        await pool.close()


async def _sessions(
    settings: Settings, name: str, parallel: int, accept: bool, rollback: bool, meter: _Meter
) -> Report:
    dsn = agent_database(settings, "worker")
    pool = await rebuild_pool(dsn, size=LANES + 2)
    try:
        async with alone(dsn, name):
            return await _all_sessions(pool, dsn, name, parallel, accept, rollback, meter)
    finally:
        await pool.close()


async def _all_sessions(
    pool: Pool, dsn: str, name: str, parallel: int, accept: bool, rollback: bool, meter: _Meter
) -> Report:
    target = await choose(pool, session_projections(), name, rollback=rollback)
    watching = asyncio.create_task(_watch(pool, target, meter.show))
    try:
        if parallel == 1:
            return await _part(pool, target, accept, 0, 1)
        return await asyncio.to_thread(_parts, dsn, target, accept, parallel)
    finally:
        watching.cancel()


async def _watch(pool: Pool, target: Target, show: Callable[[int, int], None]) -> None:
    while True:
        found: Left = await left(pool, target.name, target.generation)
        show(found.events - found.events_left, found.events)
        await asyncio.sleep(_LOOK_SECONDS)


async def _part(
    pool: Pool, target: Target, accept: bool, part: int, parts: int, progress: Callable[[Report], None] = lambda r: None
) -> Report:
    (projection,) = [one for one in session_projections() if (one.name, one.version) == (target.name, target.version)]
    return await SessionRebuild(pool, projection, target, accept=accept, part=part, parts=parts).run(progress)


async def _beside(dsn: str, target: Target, accept: bool, part: int, parts: int, parent: int) -> Report:
    def orphaned(report: Report) -> None:
        if os.getppid() != parent:
            raise CannotRun("the rebuild that this was a part of has gone")

    pool = await rebuild_pool(dsn, size=LANES + 1)
    try:
        async with beside(dsn, target.name):
            return await _part(pool, target, accept, part, parts, orphaned)
    finally:
        await pool.close()


def _in_child(dsn: str, target: Target, accept: bool, part: int, parts: int, parent: int) -> Report:
    return run_long(_beside(dsn, target, accept, part, parts, parent))


def _parts(dsn: str, target: Target, accept: bool, parts: int) -> Report:
    # Not forked: this process has threads and an event loop.
    report = Report()
    with multiprocessing.get_context("spawn").Pool(parts) as pool:
        for some in pool.starmap(_in_child, [(dsn, target, accept, part, parts, os.getpid()) for part in range(parts)]):
            report.merge(some)
    return report


def _print(name: str, report: Report, accepted: bool, json: bool) -> None:
    if json:
        sys.stdout.write(msgspec.json.encode(report).decode() + "\n")
        return
    for found in report.differences[:_SHOWN]:
        against = "what is served" if found.against == "served" else "a second fold of the same events"
        sys.stdout.write(f"{found.session_id} {found.row}: differs from {against}: {found.columns}\n")
    if len(report.differences) > _SHOWN:
        sys.stdout.write(f"… and {len(report.differences) - _SHOWN} more (--json names all)\n")
    sys.stdout.write(f"{name}: {report.flipped} served from new rows, {report.refused} refused\n")
    if report.refused and not accepted:
        sys.stdout.write("what was refused is served as before; look into it, then run again with --accept\n")
