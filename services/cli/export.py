"""`turnlog export`: one session as lines that a stranger can check (docs/audit.md)."""

import asyncio
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import IO

from domain.ids import is_uuid
from infra.postgres.audit_reader import SessionIds, open_audit_reader
from projections.audit.export import export_line
from services.cli.agent_database import agent_database, database_in_use
from services.cli.failures import FINE, CannotRun


def export(session: str, *, output: Path | None = None) -> int:
    """Write a session as JSON Lines: each event with its exact payload, salt, digests and hash.

    `turnlog audit --file` checks them without a database. Private parts are not exported, only their digests.

    Parameters
    ----------
    session
        The session's id.
    output
        File to write; standard output otherwise.
    """
    if not is_uuid(session):
        raise CannotRun("SESSION is the id of a session (a UUID), not its external id")
    with ExitStack() as stack:
        try:
            target: IO[bytes] = sys.stdout.buffer if output is None else stack.enter_context(output.open("wb"))
        except OSError as error:
            raise CannotRun(f"{output} cannot be written: {error.strerror}") from error
        with database_in_use():
            asyncio.run(_export(session, target))
        target.flush()
    return FINE


async def _export(session: str, target: IO[bytes]) -> None:
    count = 0
    async with open_audit_reader(agent_database()) as reader:
        async for events in reader.events(SessionIds(session, session)):
            count += len(events)
            target.writelines(map(export_line, events))
    if not count:
        raise CannotRun(f"there is no session {session}")
