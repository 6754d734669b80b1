"""The script, a chapter a part of the contract. Chapters share nothing and are told at the same time."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import httpx2

from tests.acceptance.agentos.caller import Caller
from tests.acceptance.agentos.contract.seen import Seen, seen_of
from tests.support.waiting import PATIENCE


class Story:
    """What one chapter does and sees. `row` and `ours`: see `Seen`."""

    def __init__(self, caller: Caller) -> None:
        self.caller = caller
        self.seen: list[Seen] = []

    async def post(self, label: str, path: str, row: str | None = None, ours: Any = None, **form: Any) -> Any:
        """A form."""
        return self._look(label, await self.caller.post(path, **form), row, ours)

    async def get(self, label: str, path: str, row: str | None = None, ours: Any = None, **query: Any) -> Any:
        return self._look(label, await self.caller.get(path, **query), row, ours)

    async def send(
        self, label: str, method: str, path: str, body: Any = None, row: str | None = None, ours: Any = None
    ) -> Any:
        """JSON."""
        return self._look(label, await self.caller.http.request(method, path, json=body), row, ours)

    def look(self, label: str, answer: httpx2.Response, row: str | None = None, ours: Any = None) -> Any:
        """An answer that came otherwise."""
        return self._look(label, answer, row, ours)

    def streamed(self, label: str, answer: httpx2.Response, content: bytes) -> Any:
        """A stream that was read by hand."""
        whole = httpx2.Response(
            answer.status_code, headers={"content-type": answer.headers["content-type"]}, content=content
        )
        return self._look(label, whole, None, None)

    def fact(self, label: str, value: Any, row: str | None = None, ours: Any = None) -> None:
        """Something that a client can find out."""
        self.seen.append(Seen(label, row, ours, fact=value))

    async def together(self, *parts: "Callable[[Story], Awaitable[None]]") -> None:
        """Parts that share nothing; what they see stands in their order."""
        stories = [Story(self.caller) for _ in parts]
        await asyncio.gather(*(part(story) for part, story in zip(parts, stories, strict=True)))
        self.seen += [seen for story in stories for seen in story.seen]

    async def run(self, kind: str, component: str, message: str, session: str, **form: Any) -> Any:
        """A run that is not looked at: its object."""
        said = {"message": message, "session_id": session, "stream": "false", **form}
        return (await self.caller.post(f"/{kind}/{component}/runs", **said)).json()

    async def ended(self, path: str, session: str, *statuses: str) -> Any:
        """Poll until the run has one of these statuses."""
        while True:
            found = (await self.caller.get(path, session_id=session)).json()
            if found.get("status") in (statuses or ("COMPLETED", "ERROR", "CANCELLED")):
                return found
            await asyncio.sleep(0.05)

    def _look(self, label: str, answer: httpx2.Response, row: str | None, ours: Any) -> Any:
        seen, body = seen_of(label, answer, row, ours)
        self.seen.append(seen)
        return body


async def told(caller: Caller) -> list[Seen]:
    """Everything that was seen, in the order of the chapters."""
    from tests.acceptance.agentos.contract import (
        branching,
        creating,
        deciding,
        discovery,
        further,
        reading,
        sessions,
        teams,
        workflows,
    )

    story = Story(caller)
    async with asyncio.timeout(2 * PATIENCE):
        chapters = (creating, reading, deciding, branching, teams, workflows, sessions, discovery, further)
        await story.together(*(chapter.tell for chapter in chapters))
    return story.seen
