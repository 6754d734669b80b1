"""A process that dies between commit and publish: `python -m tests.support.dying_publisher SESSION`, the database by
TURNLOG_TEST_DSN. It ends with DEATH and has published nothing."""

import asyncio
import os
import sys
from collections.abc import Sequence as Many

from domain.commands import CreateSession
from domain.ids import CommandKey, SessionId
from domain.ports import Publication
from infra.memory.notifier import MemoryNotifier
from tests.support.stand import open_pipeline

DEATH = 99


class Mortal(MemoryNotifier):
    """Called after the commit."""

    def publish_events(self, publications: Many[Publication]) -> None:
        os._exit(DEATH)


async def main() -> None:
    async with open_pipeline(os.environ["TURNLOG_TEST_DSN"], notifier=Mortal()) as pipeline:
        session = SessionId(sys.argv[1])
        await pipeline.execute(CreateSession(session_id=session, key=CommandKey("create"), agent_id="a"))


if __name__ == "__main__":
    asyncio.run(main())
