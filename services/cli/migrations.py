"""`turnlog migrate`: bring both databases to this release."""

import asyncio
import sys
from typing import Any
from urllib.parse import unquote, urlsplit

import asyncpg
import msgspec

from domain.errors import StoreUnavailable
from infra.postgres.migrate import MigrationReport
from infra.postgres.migrate import migrate as apply
from infra.postgres.names import SERVICE_ROLES, DatabaseKind, Role
from infra.settings import Settings, load
from services.cli.failures import FINE, CannotRun, one_line

_KINDS: tuple[DatabaseKind, ...] = ("agent", "gateway")


def migrate(*, json: bool = False) -> int:
    """Bring the databases to this release: forward only, under a lock; a second run changes nothing.

    Needs TURNLOG_POSTGRES_ADMIN. Roles and databases that are missing are created; a service role may log in with the
    password of its own URL (TURNLOG_POSTGRES_AGENT and so on) where that is set.

    Parameters
    ----------
    json
        Print JSON.
    """
    reports = asyncio.run(_migrate(load()))
    if json:
        sys.stdout.write(msgspec.json.encode(reports).decode() + "\n")
        return FINE
    for report in reports:
        applied = ", ".join(str(number) for number in report.applied) or "nothing to do"
        sys.stdout.write(f"{report.database}: version {report.version} (applied: {applied})\n")
    return FINE


async def _migrate(settings: Settings) -> list[MigrationReport]:
    admin = settings.dsn("admin")
    try:
        return [
            await apply(admin, kind, namespace=settings.namespace, passwords=_passwords(settings, kind))
            for kind in _KINDS
        ]
    except (OSError, asyncpg.PostgresConnectionError, asyncpg.InvalidPasswordError, StoreUnavailable) as error:
        raise CannotRun(f"the server of TURNLOG_POSTGRES_ADMIN cannot be used: {one_line(error)}") from error


def _passwords(settings: Settings, kind: DatabaseKind) -> dict[Role, str]:
    found: dict[Role, str] = {}
    for role in SERVICE_ROLES[kind]:
        url: Any = getattr(settings.postgres, role)
        if url is not None:
            password = _password_of(url.get_secret_value())
            if password:
                found[role] = password
    return found


def _password_of(url: str) -> str | None:
    password = urlsplit(url).password
    return None if password is None else unquote(password)
