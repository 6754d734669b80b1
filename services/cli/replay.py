"""`turnlog replay`: what a viewer saw of a session, deltas included, from the log alone."""

import asyncio
import re
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Annotated

import msgspec
from cyclopts import Parameter, validators

from domain.ids import is_uuid
from infra.postgres.audit_reader import SessionIds, open_audit_reader
from projections.viewing import Seen, Viewing
from services.cli.agent_database import agent_database, database_in_use
from services.cli.api import Frame
from services.cli.failures import FINE, CannotRun
from services.cli.screen import Screen

_LONGEST_SILENCE = 5.0
_SPEED = re.compile(r"(\d+(?:\.\d+)?)x")


def replay(
    session: str,
    *,
    until: Annotated[int | None, Parameter(validator=validators.Number(gte=1))] = None,
    speed: str = "max",
    json: bool = False,
) -> int:
    """Show a session as a viewer saw it live, every delta included.

    Parameters
    ----------
    session
        The session's id.
    until
        Stop after this sequence.
    speed
        max, or a factor of the original speed: 1x, 4x, 0.5x. Deltas are spread evenly, since the log keeps their order
        and cuts but not their times; silences are cut to 5 seconds.
    json
        Print each frame as its JSON, byte for byte as it was sent.
    """
    if not is_uuid(session):
        raise CannotRun("SESSION is the id of a session (a UUID), not its external id")
    factor = _SPEED.fullmatch(speed)
    if speed != "max" and (factor is None or float(factor[1]) == 0):
        raise CannotRun("--speed is max or a factor like 1x or 0.5x")
    show = _print if json else _drawer()
    with database_in_use():
        asyncio.run(_replay(session, until, None if factor is None else float(factor[1]), show))
    return FINE


async def _replay(session: str, until: int | None, factor: float | None, show: Callable[[Seen], None]) -> None:
    before: int | None = None
    async with aclosing(_seen(session, until)) as frames:
        async for seen in frames:
            if factor is not None and before is not None and seen.at > before:
                await asyncio.sleep(min((seen.at - before) / 1e6, _LONGEST_SILENCE) / factor)
            before = seen.at
            show(seen)
    if before is None:
        raise CannotRun(f"there is no session {session}")


async def _seen(session: str, until: int | None) -> AsyncGenerator[Seen, None]:
    viewing = Viewing()
    ids = SessionIds(session, session)
    async with open_audit_reader(agent_database()) as reader, aclosing(reader.events(ids)) as pages:
        async for page in pages:
            for event in page:
                if until is not None and event.sequence > until:
                    break
                for seen in viewing.take(event):
                    yield seen
            if until is not None and page[-1].sequence >= until:
                break
    for seen in viewing.rest():
        yield seen


def _drawer() -> Callable[[Seen], None]:
    screen = Screen()

    def draw(seen: Seen) -> None:
        screen.show(Frame(seen.type, msgspec.json.decode(seen.wire), "", seen.sequence))

    return draw


def _print(seen: Seen) -> None:
    sys.stdout.write(seen.wire.decode() + "\n")
    sys.stdout.flush()
