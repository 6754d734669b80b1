"""The embedded PostgreSQL: real processes, killed in every way a machine does it."""

import asyncio
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import asyncpg
import pytest

from infra.embedded import DataMismatch, EmbeddedPostgres, ServerAlreadyRunning, ServerFailed
from infra.embedded.place import free_port
from tests.support.databases import Databases, Migrate


async def answer(dsn: str, query: str) -> object:
    connection = await asyncpg.connect(dsn)
    try:
        return await connection.fetchval(query)
    finally:
        await connection.close()


@pytest.mark.every_postgres
async def test_it_is_durable_utf8_and_only_on_loopback(postgres: EmbeddedPostgres, postgres_version: str) -> None:
    expected = {
        "server_encoding": "UTF8",
        "lc_collate": "C.UTF-8",
        "fsync": "on",
        "synchronous_commit": "on",
        "listen_addresses": "127.0.0.1",
        "password_encryption": "scram-sha-256",
        "max_connections": "200",
        "log_min_error_statement": "panic",
    }
    connection = await asyncpg.connect(postgres.superuser_dsn)
    try:
        rows = await connection.fetch("SELECT name, setting FROM pg_settings")
        collation = await connection.fetchval("SELECT datcollate FROM pg_database WHERE datname = 'postgres'")
    finally:
        await connection.close()
    found = {row["name"]: row["setting"] for row in rows} | {"lc_collate": collation}
    assert {name: found[name] for name in expected} == expected
    assert found["server_version_num"].startswith(postgres_version)


async def test_nobody_gets_in_without_the_password(postgres: EmbeddedPostgres) -> None:
    with pytest.raises(asyncpg.InvalidPasswordError):
        await asyncpg.connect(postgres.dsn("postgres", "wrong", "postgres"))
    sockets = str(await answer(postgres.superuser_dsn, "SHOW unix_socket_directories"))
    with pytest.raises(asyncpg.InvalidPasswordError):
        await asyncpg.connect(host=sockets, port=postgres.port, user="postgres", password="wrong", database="postgres")


async def test_what_is_secret_is_readable_for_its_owner_only(postgres: EmbeddedPostgres) -> None:
    root = postgres.log.parent
    assert stat.S_IMODE((root / "passwords.json").stat().st_mode) == 0o600
    assert stat.S_IMODE((root / "server").stat().st_mode) == 0o700
    assert not (root / "server" / "initial-password").exists()


async def test_as_root_it_runs_under_the_account_that_owns_the_data(postgres: EmbeddedPostgres) -> None:
    owner = (postgres.log.parent / "server" / "data").stat().st_uid
    assert owner != 0
    status = Path(f"/proc/{postgres.pid}/status").read_text()
    assert f"Uid:\t{owner}\t{owner}\t{owner}\t{owner}" in status


async def test_a_login_and_a_database_are_made_once_and_kept(databases: Databases, postgres: EmbeddedPostgres) -> None:
    password = await postgres.create_login("embedded_test_role")
    assert await postgres.create_login("embedded_test_role") == password
    database = await databases.create(None)
    await postgres.create_database(database.name)
    assert await answer(await database.dsn_of("embedded_test_role"), "SELECT current_user") == "embedded_test_role"


async def test_a_template_is_migrated_once_and_cloned(databases: Databases, migrations: dict[str, Migrate]) -> None:
    migrated = []

    async def migrate(server: EmbeddedPostgres, database: str) -> None:
        migrated.append(database)
        await server.create_database(database)
        connection = await asyncpg.connect(server.superuser_dsn, database=database)
        await connection.execute("CREATE TABLE thing AS SELECT 42 AS answer")
        await connection.close()

    migrations["embedded_test"] = migrate
    first, second = await databases.create("embedded_test"), await databases.create("embedded_test")
    connection = await asyncpg.connect(first.dsn)
    await connection.execute("DELETE FROM thing")
    await connection.close()
    assert await answer(second.dsn, "SELECT answer FROM thing") == 42
    assert len(migrated) == 1


@pytest.mark.every_postgres
async def test_it_recovers_from_kill_and_keeps_what_was_committed(own_postgres: EmbeddedPostgres) -> None:
    server, port = own_postgres, own_postgres.port
    connection = await asyncpg.connect(server.superuser_dsn)
    await connection.execute("CREATE TABLE kept (n int); INSERT INTO kept VALUES (1)")
    await server.kill()
    connection.terminate()
    assert server.pid is None
    # Whatever has that pid now (here: we do) must not be taken for the server.
    pid_file = server.log.parent / "server" / "data" / "postmaster.pid"
    lines = pid_file.read_text().splitlines()
    pid_file.write_text("\n".join([str(os.getpid()), *lines[1:]]) + "\n")
    await server.start()
    assert server.port == port
    assert await answer(server.superuser_dsn, "SELECT n FROM kept") == 1
    await server.restart()
    assert server.port == port
    assert await answer(server.superuser_dsn, "SELECT n FROM kept") == 1


async def test_a_second_server_of_the_same_data_is_refused(own_postgres: EmbeddedPostgres) -> None:
    second = EmbeddedPostgres(own_postgres.log.parent)
    with pytest.raises(ServerAlreadyRunning, match=f"process {os.getpid()}"):
        await second.start()
    assert await answer(own_postgres.superuser_dsn, "SELECT 1") == 1


async def test_a_server_that_somebody_started_by_hand_is_not_touched(own_postgres: EmbeddedPostgres) -> None:
    server = own_postgres
    data = server.log.parent / "server" / "data"
    await server.stop()
    status = os.stat(data)
    binary = await asyncio.to_thread(lambda: server._binaries.postgres if server._binaries else None)
    switch = ["setpriv", f"--reuid={status.st_uid}", f"--regid={status.st_gid}", "--clear-groups", "--"]
    command = [*(switch if os.geteuid() == 0 else []), str(binary), "-D", str(data)]
    by_hand = await asyncio.create_subprocess_exec(*command, cwd=data, stderr=asyncio.subprocess.DEVNULL)
    try:
        async with asyncio.timeout(10):
            while "ready" not in await asyncio.to_thread(_text, data / "postmaster.pid"):
                await asyncio.sleep(0.01)
        with pytest.raises(ServerAlreadyRunning, match=f"process {by_hand.pid}"):
            await server.start()
        assert await answer(server.superuser_dsn, "SELECT 1") == 1
    finally:
        by_hand.send_signal(signal.SIGINT)
        await by_hand.wait()
    await server.start()


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


STARTER = """
import asyncio, sys
from pathlib import Path
from infra.embedded import EmbeddedPostgres

async def main():
    server = EmbeddedPostgres(Path(sys.argv[1]))
    await server.start()
    print(server.pid, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_it_ends_with_a_killed_parent_and_the_next_start_waits_for_that(own_postgres: EmbeddedPostgres) -> None:
    directory = own_postgres.log.parent
    await own_postgres.stop()
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", STARTER, str(directory), stdout=asyncio.subprocess.PIPE
    )
    assert parent.stdout is not None
    server = int(await parent.stdout.readline())
    parent.kill()
    await parent.wait()
    # At once, while the server is still on its way out.
    await own_postgres.start()
    assert own_postgres.pid != server
    assert await answer(own_postgres.superuser_dsn, "SELECT 1") == 1


async def test_data_of_another_major_version_is_refused(own_postgres: EmbeddedPostgres) -> None:
    await own_postgres.stop()
    other = EmbeddedPostgres(own_postgres.log.parent, version="16")
    with pytest.raises(DataMismatch, match="was made by PostgreSQL 18, but the binaries are 16"):
        await other.start()
    await own_postgres.start()


async def test_a_broken_initialisation_is_begun_anew(place: Path) -> None:
    server = EmbeddedPostgres(place / "postgres")
    building = place / "postgres" / "server" / "data.new"
    server._place.prepare()
    building.mkdir()
    (building / "PG_VERSION").write_text("18\n")
    await server.start()
    assert await answer(server.superuser_dsn, "SELECT 1") == 1
    await server.stop()


async def test_a_port_somebody_took_is_an_error_when_given_and_replaced_when_not(
    own_postgres: EmbeddedPostgres,
) -> None:
    directory, port = own_postgres.log.parent, own_postgres.port
    await own_postgres.stop()
    occupant = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", port)
    async with occupant:
        with pytest.raises(ServerFailed, match="did not start"):
            await EmbeddedPostgres(directory, port=port).start()
        other = EmbeddedPostgres(directory)
        await other.start()
        assert other.port != port
        assert await answer(other.superuser_dsn, "SELECT 1") == 1
        await other.stop()


async def test_a_deep_directory_still_has_a_socket(place: Path) -> None:
    deep = place / ("d" * 60) / ("e" * 60)
    server = EmbeddedPostgres(deep)
    await server.start()
    try:
        sockets = str(await answer(server.superuser_dsn, "SHOW unix_socket_directories"))
        assert len(sockets) < 90
        connection = await asyncpg.connect(
            host=sockets, port=server.port, user="postgres", password=server.password_of("postgres")
        )
        assert await connection.fetchval("SELECT inet_client_addr() IS NULL")
        await connection.close()
    finally:
        await server.stop()
        Path(sockets).rmdir()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has a directory that the servers' account cannot reach")
async def test_data_below_a_closed_directory_goes_to_the_shelter(place: Path) -> None:
    closed, shelter = place / "closed", place / "shelter"
    closed.mkdir(mode=0o700)
    server = EmbeddedPostgres(closed / "postgres", shelter=shelter)
    await server.start()
    try:
        assert await answer(server.superuser_dsn, "SELECT 1") == 1
        assert (closed / "postgres" / "server").resolve().is_relative_to(shelter)
        assert stat.S_IMODE(closed.stat().st_mode) == 0o700
    finally:
        await server.stop()


async def test_no_statement_and_no_row_reaches_the_log(own_postgres: EmbeddedPostgres) -> None:
    connection = await asyncpg.connect(own_postgres.superuser_dsn)
    await connection.execute("CREATE TABLE unique_things (thing text PRIMARY KEY)")
    await connection.execute("INSERT INTO unique_things VALUES ($1)", "marker-in-a-row")
    with pytest.raises(asyncpg.UniqueViolationError):
        await connection.execute("INSERT INTO unique_things VALUES ($1)", "marker-in-a-row")
    with pytest.raises(asyncpg.PostgresSyntaxError):
        await connection.execute("SELECT marker in a statement")
    await connection.close()
    log = await asyncio.to_thread(own_postgres.log.read_text)
    assert "duplicate key value" in log
    assert "marker" not in log


def test_free_ports_lie_below_the_range_of_outgoing_connections() -> None:
    first, _ = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    assert free_port() < int(first)


def test_the_system_sees_no_server_of_an_earlier_test_run(place: Path) -> None:
    """The launcher of a finished process leaves nothing: run one to its end and look."""
    script = "import asyncio, sys\nfrom pathlib import Path\nfrom infra.embedded import EmbeddedPostgres\n"
    script += "async def main():\n    server = EmbeddedPostgres(Path(sys.argv[1]))\n    await server.start()\n"
    script += "    print(server.pid)\n    await server.stop()\nasyncio.run(main())\n"
    done = subprocess.run(
        [sys.executable, "-c", script, str(place / "postgres")], capture_output=True, text=True, check=True
    )
    assert not Path(f"/proc/{done.stdout.strip()}").exists()
