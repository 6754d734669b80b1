"""`turnlog projections`: how far feed projections are, what they could not apply, a second chance for that, and what
rebuilds have left behind."""

import asyncio
import sys
from typing import Annotated

import msgspec
from cyclopts import App, Parameter

from domain.clock import rfc3339
from domain.ids import Micros
from infra.postgres.feed_slots import Parked, PostgresFeedSlots, SlotState
from infra.postgres.pool import create_pool
from infra.settings import load
from projections.serving import session_projections
from services.cli.agent_database import agent_database, database_in_use
from services.cli.failures import FINE, FOUND_WRONG, CannotRun
from services.cli.long_work import run_long
from services.projector.forgetting import forget_generations, forget_previous
from services.projector.generations import alone, rebuild_pool
from services.projector.projections import all_projections
from services.projector.retrying import retry as apply_again

app = App(name="projections", help="Feed projections: how far they are, and what they could not apply.")
Own = Annotated[tuple[str, ...], Parameter(name="--projection", negative=())]


@app.default
def show(*, json: bool = False) -> int:
    """Show each projection with its version, lag and parked events; exit code 1 where something is parked.

    Parameters
    ----------
    json
        Print JSON.
    """
    with database_in_use():
        states = asyncio.run(_states())
    if json:
        sys.stdout.write(msgspec.json.encode(states).decode() + "\n")
    for state in states if not json else ():
        place = "" if state.slot == "serving" else f" ({state.slot})"
        runs = "runs" if state.running else "idle"
        sys.stdout.write(
            f"{state.name}{place}: version {state.version}, {runs}, {state.lag_events} events and"
            f" {state.lag_seconds:.1f} s behind, {state.parked} parked\n"
        )
    return FOUND_WRONG if any(state.parked for state in states) else FINE


@app.command
def parked(name: str | None = None, *, json: bool = False) -> int:
    """List events that were set aside, with the reason; exit code 1 where there are any.

    Parameters
    ----------
    name
        Of one projection.
    json
        Print JSON.
    """
    with database_in_use():
        found = asyncio.run(_parked(name))
    if json:
        sys.stdout.write(msgspec.json.encode(found).decode() + "\n")
    for one in found if not json else ():
        when = rfc3339(Micros(one.parked_at))
        sys.stdout.write(f"{one.name} {one.session_id} {one.sequence:>6} {when} ({one.attempts}) {one.reason}\n")
    return FOUND_WRONG if found else FINE


@app.command
def retry(name: str, *, projections: Own = ()) -> int:
    """Apply the parked events of a projection again; exit code 1 where some are still refused.

    Parameters
    ----------
    name
        The projection.
    projections
        Where one's own is: module:Name (TURNLOG_PROJECTOR_PROJECTIONS).
    """
    with database_in_use():
        done, left = asyncio.run(_retry(name, projections))
    sys.stdout.write(f"{name}: {done} applied, {left} still parked\n")
    return FOUND_WRONG if left else FINE


@app.command
def forget(name: str) -> int:
    """Remove what rebuilds have left behind, and with it the way back (`turnlog rebuild NAME --rollback`).

    Of turns and messages the rows of generations that no session is served from any more; of a feed projection the
    tables that were served before. While it runs everything goes on.

    Parameters
    ----------
    name
        turns, messages, or a feed projection.
    """
    with database_in_use():
        said = run_long(_forget(name))
    sys.stdout.write(said + "\n")
    return FINE


async def _forget(name: str) -> str:
    settings = load()
    if name in {one.name for one in session_projections()}:
        dsn = agent_database(settings, "worker")
        pool = await rebuild_pool(dsn, size=1)
        try:
            async with alone(dsn, name):
                gone = await forget_generations(pool, name)
        finally:
            await pool.close()
        kept = f"; {gone.left} sessions are still served from older ones" if gone.left else ""
        return f"{name}: {gone.rows} rows of older generations removed{kept}"
    pool = await create_pool(agent_database(settings), size=1)
    try:
        slots = PostgresFeedSlots(pool)
        if name not in {state.name for state in await slots.states()}:
            raise CannotRun(f"there is no projection {name} in this database")
        there = await forget_previous(slots, name)
    finally:
        await pool.close()
    return f"{name}: previous tables removed" if there else f"{name}: there were no previous tables"


async def _states() -> list[SlotState]:
    pool = await create_pool(agent_database(), size=1)
    try:
        return await PostgresFeedSlots(pool).states()
    finally:
        await pool.close()


async def _parked(name: str | None) -> list[Parked]:
    pool = await create_pool(agent_database(), size=1)
    try:
        return await PostgresFeedSlots(pool).parked(name)
    finally:
        await pool.close()


async def _retry(name: str, own: tuple[str, ...]) -> tuple[int, int]:
    settings = load()
    known = {one.name: one for one in all_projections(own or settings.projector.projections)}
    if name not in known:
        raise CannotRun(f"there is no projection {name}; known are {', '.join(known)}")
    pool = await create_pool(agent_database(settings), size=2)
    try:
        return await apply_again(pool, known[name])
    finally:
        await pool.close()
