"""A database per test, cloned from a template that was migrated once per server and kind."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import asyncpg

from infra.embedded import EmbeddedPostgres

Migrate = Callable[[EmbeddedPostgres, str], Awaitable[None]]
"""Brings the named database of a server (created if it is not there) to the newest schema."""


@dataclass(frozen=True, slots=True)
class Database:
    """A fresh database of one test."""

    name: str
    server: EmbeddedPostgres

    @property
    def dsn(self) -> str:
        """As superuser."""
        return self.server.superuser_dsn.removesuffix("/postgres") + f"/{self.name}"

    async def dsn_of(self, role: str) -> str:
        """As `role`, which is created if the migrations have not done so, and may now log in."""
        return self.server.dsn(role, await self.server.create_login(role), self.name)


class Databases:
    """Clones of migrated templates. `migrations` maps a kind (agent, gateway) to what migrates an empty database."""

    def __init__(self, server: EmbeddedPostgres, migrations: dict[str, Migrate], templates: set[str]) -> None:
        self._server = server
        self._migrations = migrations
        self._templates = templates
        self._made: list[str] = []

    async def create(self, kind: str | None = "agent") -> Database:
        """A clone of the kind's template; of `None`, an empty database."""
        template = "template0" if kind is None else await self._template(kind)
        name = f"t_{uuid.uuid4().hex}"
        self._made.append(name)
        await self._execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
        return Database(name, self._server)

    async def drop_all(self) -> None:
        for name in self._made:
            await self._execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
        self._made.clear()

    async def _template(self, kind: str) -> str:
        name = f"template_{kind}"
        if name not in self._templates:
            await self._migrations[kind](self._server, name)
            self._templates.add(name)
        return name

    async def _execute(self, statement: str) -> None:
        # A template that somebody has just left counts as in use until its last session is gone.
        for attempt in range(100):
            connection = await asyncpg.connect(self._server.superuser_dsn)
            try:
                await connection.execute(statement)
                return
            except asyncpg.ObjectInUseError:
                if attempt == 99:
                    raise
            finally:
                await connection.close()
            await asyncio.sleep(0.02)
