"""Registrations for streams that are opened in a storm: asked for together, at a pace.

Nothing is kept: an answer is never older than the question of whoever gets it.
"""

from asyncio import Future, Task, get_running_loop, shield
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Generic, TypeVar

from domain.errors import TurnlogError
from domain.ids import SessionId
from infra.postgres.registrations import Owner, PostgresRegistrations, Registration, RegistrationsUnavailable
from services.gateway.sse.pace import Pace

Key = TypeVar("Key")
Found = TypeVar("Found")

Spawn = Callable[[Coroutine[Any, Any, None]], "Task[None]"]
"""Runs a task that somebody owns."""

_MOST = 500
"""Keys of one question."""

_BURST, _A_SECOND = 20, 25.0


class Together(Generic[Key, Found]):
    """One question at a time, for everything that was wanted before it was sent."""

    def __init__(self, ask: Callable[[list[Key]], Awaitable[Mapping[Key, Found]]], spawn: "Spawn") -> None:
        """`ask` raises what `find` is to raise."""
        self._ask = ask
        self._spawn = spawn
        self._pace = Pace(_BURST, _A_SECOND)
        self._wanted: dict[Key, Future[Found | None]] = {}
        self._asking = False

    async def find(self, key: Key) -> Found | None:
        """As read after this call."""
        wanted = self._wanted.get(key)
        if wanted is None:
            wanted = self._wanted[key] = get_running_loop().create_future()
            if not self._asking:
                self._asking = True
                self._spawn(self._run())
        return await shield(wanted)

    async def _run(self) -> None:
        """Until nothing is wanted."""
        batch: dict[Key, Future[Found | None]] = {}
        try:
            while self._wanted:
                await self._pace.step()
                batch = {key: self._wanted.pop(key) for key in list(self._wanted)[:_MOST]}
                try:
                    found = await self._ask(list(batch))
                except TurnlogError as error:
                    _fail(batch, error)
                else:
                    for key, wanted in batch.items():
                        wanted.set_result(found.get(key))
        finally:
            self._asking = False
            # This process ends, or a fault of ours: who waits is told.
            _fail({**batch, **self._wanted}, RegistrationsUnavailable())
            self._wanted.clear()


def _fail(wanted: "Mapping[Any, Future[Any]]", error: Exception) -> None:
    for one in wanted.values():
        if not one.done():
            one.set_exception(error)
            one.exception()  # whoever asked may be gone


class Lookups:
    """`named` and `get` of `PostgresRegistrations`, for many callers at once. `spawn`: its tasks end with whoever owns
    them."""

    def __init__(self, registrations: PostgresRegistrations, spawn: "Spawn") -> None:
        self._named: Together[tuple[Owner, str], Registration] = Together(registrations.named_many, spawn)
        self._got: Together[SessionId, Registration] = Together(registrations.get_many, spawn)

    async def named(self, owner: Owner, name: str) -> Registration | None:
        """See `PostgresRegistrations.named`."""
        return await self._named.find((owner, name))

    async def get(self, session_id: SessionId) -> Registration | None:
        """See `PostgresRegistrations.get`."""
        return await self._got.find(session_id)
