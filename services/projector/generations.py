"""Generations of `turns` and `messages`: which one a rebuild writes, how much of it is left, and who may rebuild."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import msgspec

from domain.errors import StoreUnavailable
from domain.ports import SessionProjection
from infra.pipeline.versions import read_generations
from infra.postgres.pool import POINT_LOOKUPS, UNREACHABLE, Pool, Timeouts, create_pool, fetch
from infra.postgres.sql import statements
from services.projector.rebuild_report import RebuildRefused

_SQL = statements("rebuild")


class Target(msgspec.Struct, frozen=True):
    """The generation that a rebuild writes, of that version. `versions`: of the older ones. `untouched`: it was opened
    just now, so that no killed rebuild has left rows in it."""

    name: str
    generation: int
    version: int
    versions: dict[int, int]
    untouched: bool = False


class Left(msgspec.Struct, frozen=True):
    """How much of a rebuild is left."""

    sessions: int
    sessions_left: int
    events: int
    events_left: int


async def rebuild_pool(dsn: str, *, size: int) -> Pool:
    """Connections of the worker role for a rebuild. Rows are looked up by key only. What is built and then lost
    with the server is built again, so that its commits do not wait for the disk; a flip does. What is read for long is
    read outside transactions; one that writes or flips a group of sessions takes no longer than a statement may."""
    bounds = Timeouts()
    return await create_pool(
        dsn,
        size=size,
        application="turnlog rebuild",
        timeouts=msgspec.structs.replace(bounds, transaction=bounds.statement),
        planner={**POINT_LOOKUPS, "synchronous_commit": "off"},
    )


async def choose(pool: Pool, projections: tuple[SessionProjection, ...], name: str, *, rollback: bool) -> Target:
    """The generation to build: that of a rebuild which has not finished, else a new one of the newest version in this
    code, or, for a rollback, of the version that was served before. Raises RebuildRefused, StoreUnavailable."""
    async with pool.acquire(timeout=5) as connection:
        known = await read_generations(connection)
    versions = {generation: version for (n, generation), version in known.versions.items() if n == name}
    have = sorted(p.version for p in projections if p.name == name)
    newest = max(versions)
    wanted = have[-1]
    if rollback:
        if newest - 1 not in versions:
            reason = f"{name} has no generation before the newest one (any more): there is nothing to go back to"
            raise RebuildRefused(reason=reason)
        wanted = versions[newest - 1]
        if wanted not in have:
            reason = f"version {wanted} of {name} is not in this release: run the one that has it"
            raise RebuildRefused(reason=reason)
    elif versions[newest] > wanted:
        raise RebuildRefused(reason=f"{name} has version {versions[newest]} and this release only {wanted}: upgrade it")
    unfinished = (await left(pool, name, newest)).sessions_left > 0
    if unfinished and versions[newest] == wanted:
        return Target(name, newest, wanted, versions)
    rows = await fetch(pool, _SQL["open_generation"], name, wanted)
    newest = rows[0]["generation"]
    versions[newest] = wanted
    return Target(name, newest, wanted, versions, untouched=True)


async def left(pool: Pool, name: str, generation: int) -> Left:
    """What is left of a rebuild to that generation."""
    (row,) = await fetch(pool, _SQL["left"], name, generation)
    return Left(row["sessions"], row["sessions_left"], row["events"], row["events_left"])


@asynccontextmanager
async def alone(dsn: str, name: str) -> AsyncIterator[None]:
    """Nobody else rebuilds that read model as long as the block, parts of a killed one included. Raises RebuildRefused
    where somebody does."""
    async with _lock_connection(dsn) as connection:
        try:
            await connection.execute(_SQL["lock"], name)
        except asyncpg.LockNotAvailableError:
            raise RebuildRefused(reason=f"another rebuild of {name} runs") from None
        # Shared from here on, with the parts.
        await connection.execute(_SQL["share"], name)
        await connection.execute(_SQL["unlock"], name)
        yield


@asynccontextmanager
async def beside(dsn: str, name: str) -> AsyncIterator[None]:
    """A part of the rebuild, in a process of its own."""
    async with _lock_connection(dsn) as connection:
        await connection.execute(_SQL["share"], name)
        yield


@asynccontextmanager
async def _lock_connection(dsn: str) -> AsyncIterator[Any]:
    # The lock ends with the connection, thus with the process.
    settings = {"application_name": "turnlog rebuild", "lock_timeout": "5000"}
    try:
        connection = await asyncpg.connect(dsn, timeout=5, server_settings=settings)
    except UNREACHABLE as error:
        raise StoreUnavailable() from error
    try:
        yield connection
    finally:
        connection.terminate()
