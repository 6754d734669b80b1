"""A real PostgreSQL in a data directory, from the wheel's binaries (or any others), started and ended by us."""

import shutil
import signal
import subprocess
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

import asyncpg

from infra.embedded.binaries import SHELTER, PostgresBinaries, postgres_binaries
from infra.embedded.errors import DataMismatch, ServerAlreadyRunning, ServerFailed
from infra.embedded.postgres_files import HBA, configuration, foreign_server, is_ready, remove_stale
from infra.embedded.process import plain_environment
from infra.embedded.server import EmbeddedServer, telling_line

SUPERUSER = "postgres"

# After kill -9 of the postmaster its last children need a moment to see it; until then the shared memory is in use.
_STILL_IN_USE = ("pre-existing shared memory block", "is still in use")
_PORT_TAKEN = ("could not bind", "could not create any TCP/IP sockets")


class EmbeddedPostgres(EmbeddedServer):
    """PostgreSQL on a loopback port and a private socket directory, with scram passwords and fsync on.

    The data is never served by another major version than made it (DataMismatch).
    """

    program = "PostgreSQL"
    # The fast shutdown: sessions are ended, a checkpoint is written. SIGQUIT leaves recovery to the next start.
    on_parent_death = "INT"
    stop_signals = ((signal.SIGINT, 30.0), (signal.SIGQUIT, 5.0))

    def __init__(
        self,
        directory: Path,
        *,
        version: str = "18",
        binaries: Path | None = None,
        port: int | None = None,
        settings: Mapping[str, str] | None = None,
        start_timeout: float = 120.0,
        shelter: Path = SHELTER,
    ) -> None:
        """`version` 18 or 16 of the wheel, or another installation's `bin` directory as `binaries`; `settings` are
        lines of postgresql.conf; `start_timeout` in seconds, long because recovery after a crash may replay much.
        """
        super().__init__(directory, port=port, start_timeout=start_timeout, shelter=shelter)
        self._version = version
        self._directory = binaries
        self._settings = dict(settings or {})
        self._binaries: PostgresBinaries | None = None

    @property
    def superuser_dsn(self) -> str:
        """For migrations and tests; services get a role of their own by `create_login`."""
        return self.dsn(SUPERUSER, self.password_of(SUPERUSER), "postgres")

    def dsn(self, user: str, password: str, database: str) -> str:
        """The URL of `database` for `user`. Names are ours, passwords letters and digits: nothing to escape."""
        return f"postgresql://{user}:{password}@{self.host}:{self.port}/{database}"

    def password_of(self, role: str) -> str:
        """The kept (or now generated) password for a role's login."""
        return self._passwords.of(role)

    async def create_login(self, role: str) -> str:
        """Let `role` log in with its kept password (creating the role if need be); returns its password."""
        password = self.password_of(role)
        await self._execute_formatted("create_login.sql", role, password)
        return password

    async def create_database(self, name: str, *, owner: str = SUPERUSER) -> None:
        """Create the database unless it exists."""
        await self._execute_formatted("create_database.sql", name, owner)

    async def _execute_formatted(self, resource: str, *arguments: str) -> None:
        query = (files("infra.embedded") / "sql" / resource).read_text()
        connection = await asyncpg.connect(self.superuser_dsn)
        try:
            statement = await connection.fetchval(query, *arguments)
            if statement is not None:
                await connection.execute(statement)
        finally:
            await connection.close()

    @property
    def _data(self) -> Path:
        return self._place.home / "data"

    def _install(self) -> None:
        place = self._place
        self._binaries = postgres_binaries(
            self._version, place.account, directory=self._directory, shelter=self._shelter
        )
        if not self._data.exists():
            self._initialise(self._binaries)
        found = (self._data / "PG_VERSION").read_text().strip()
        if found != str(self._binaries.major):
            raise DataMismatch(place=place.root, found=found, wanted=self._binaries.major)
        foreign = foreign_server(self._data)
        if foreign is not None:
            raise ServerAlreadyRunning(place=place.root, pid=foreign)

    def _initialise(self, binaries: PostgresBinaries) -> None:
        """Make the cluster under another name and move it in place, so that a broken attempt is not taken for one."""
        home = self._place.home
        building = home / "data.new"
        shutil.rmtree(building, ignore_errors=True)
        secret = home / "initial-password"
        self._place.write(secret, self.password_of(SUPERUSER))
        argv = [str(binaries.initdb), "-D", str(building), "-U", SUPERUSER, f"--pwfile={secret}"]
        argv += ["--auth=scram-sha-256", "--locale=C.UTF-8", "--encoding=UTF8"]
        try:
            done = subprocess.run(
                self._place.account.command(argv),
                cwd=home,
                env=plain_environment(home),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
            )
        finally:
            secret.unlink()
        if done.returncode != 0:
            self._place.log.write_text(done.stdout + done.stderr)
            reason = telling_line(done.stderr, ("error:",))
            raise ServerFailed(program="initdb", reason=reason, log=self._place.log)
        with (building / "postgresql.conf").open("a") as file:
            file.write("\ninclude = 'turnlog.conf'\n")
        building.rename(self._data)

    def _configure(self) -> list[str]:
        if self._binaries is None:
            raise RuntimeError("not installed")
        sockets = self._place.sockets()
        remove_stale(self._data, sockets)
        text = configuration(port=self.port, sockets=sockets, further=self._settings)
        self._place.write(self._data / "turnlog.conf", text)
        self._place.write(self._data / "pg_hba.conf", HBA)
        return [str(self._binaries.postgres), "-D", str(self._data)]

    async def _is_ready(self, pid: int) -> bool:
        return is_ready(self._data, pid)

    def _may_retry(self, printed: str) -> bool:
        if any(sign in printed for sign in _STILL_IN_USE):
            return True
        return self._wanted_port is None and any(sign in printed for sign in _PORT_TAKEN)

    def _reason(self, printed: str) -> str:
        return telling_line(printed, ("FATAL", "PANIC"))
