"""The embedded servers of one data directory: started, migrated, kept running, stopped."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from domain.errors import TurnlogError
from infra.embedded import EmbeddedNats, EmbeddedPostgres
from infra.embedded.passwords import Passwords
from infra.embedded.server import EmbeddedServer
from infra.postgres.migrate import migrate
from infra.postgres.names import SERVICE_ROLES, DatabaseKind, database_name, role_name
from infra.settings import Role, Settings
from services.cli.site import ROLES, Site

_RETRY_SECONDS = 2.0
_KINDS: tuple[DatabaseKind, ...] = ("agent", "gateway")


class Installation:
    """A real PostgreSQL and a real nats-server. Whatever killed the last ones, `start` recovers."""

    def __init__(self, settings: Settings) -> None:
        data = settings.data.absolute()
        self._namespace = settings.namespace
        self._secrets = Passwords(data / "secrets.json")
        self.postgres = EmbeddedPostgres(
            data / "postgres", version=settings.postgres.version, binaries=settings.postgres.bin
        )
        self.nats = EmbeddedNats(data / "nats", namespaces=(settings.namespace,), binary=settings.nats.server)

    async def start(self) -> None:
        """Both servers are ready and both databases are of this release when this returns. Raises TurnlogError; then
        nothing is left running."""
        try:
            # One after the other where it fails, at the same time where it does not.
            async with asyncio.TaskGroup() as group:
                group.create_task(self.nats.start())
                group.create_task(self._start_postgres())
        except BaseExceptionGroup as failures:
            await self.stop()
            raise failures.exceptions[0] from None

    async def stop(self) -> None:
        """Orderly end of both."""
        await self.nats.stop()
        await self.postgres.stop()

    async def keep(self, stop: asyncio.Event, log: Callable[[str, str], None]) -> None:
        """Until `stop`: start a server again that has died."""
        async with asyncio.TaskGroup() as group:
            group.create_task(_keep(self.postgres, stop, log))
            group.create_task(_keep(self.nats, stop, log))

    def site(self, agent_urls: Sequence[str]) -> Site:
        """What the roles must know to use these servers."""
        return Site(
            namespace=self._namespace,
            dsns={role: self._dsn(role) for role in ROLES},
            nats_urls=(self.nats.url,),
            nats_passwords={role: self.nats.credentials(role)[1] for role in ROLES},
            service_secret=self._secrets.of("service"),
            agent_urls=tuple(agent_urls),
        )

    async def _start_postgres(self) -> None:
        await self.postgres.start()
        for kind in _KINDS:
            passwords = {
                role: self.postgres.password_of(role_name(role, self._namespace)) for role in SERVICE_ROLES[kind]
            }
            await migrate(self.postgres.superuser_dsn, kind, namespace=self._namespace, passwords=passwords)

    def _dsn(self, role: Role) -> str:
        name = role_name(role, self._namespace)
        database = database_name("gateway" if role == "gateway" else "agent", self._namespace)
        return self.postgres.dsn(name, self.postgres.password_of(name), database)


async def _keep(server: EmbeddedServer, stop: asyncio.Event, log: Callable[[str, str], None]) -> None:
    stopping = asyncio.create_task(stop.wait())
    try:
        while not stop.is_set():
            ended = asyncio.create_task(server.wait())
            await asyncio.wait({stopping, ended}, return_when=asyncio.FIRST_COMPLETED)
            if stop.is_set():
                ended.cancel()
                return
            log("up", f"{server.program} ended (exit code {ended.result()}); starting it again")
            await _start_again(server, stop, log)
    finally:
        stopping.cancel()


async def _start_again(server: EmbeddedServer, stop: asyncio.Event, log: Callable[[str, str], None]) -> None:
    while not stop.is_set():
        # Lets go of the directory's lock, which the dead server's starter still holds.
        await server.kill()
        try:
            await server.start()
            return
        except TurnlogError as error:
            log("up", f"{error} Trying again in {_RETRY_SECONDS:.0f} s")
        with suppress(TimeoutError):
            async with asyncio.timeout(_RETRY_SECONDS):
                await stop.wait()
