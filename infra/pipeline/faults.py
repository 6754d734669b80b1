"""What an error of the database means for the commands that met it."""

import asyncpg

from domain.errors import TurnIdTaken, TurnlogError, Unstorable
from infra.postgres.pool import UNREACHABLE

FAULTS: tuple[type[BaseException], ...] = (asyncpg.PostgresError, *UNREACHABLE)
"""Everything that running a group can meet; anything else is a fault of ours."""

_OURS_ALONE = (
    asyncpg.IntegrityConstraintViolationError,
    asyncpg.DataError,
    asyncpg.exceptions._base.DataError,
    asyncpg.ProgramLimitExceededError,
)


def refusal(error: BaseException) -> TurnlogError | None:
    """The refusal of a single command that broke the store's rules all by itself; None where a retry may help."""
    if isinstance(error, asyncpg.UniqueViolationError) and (error.table_name or "") == "turns":
        return TurnIdTaken(external_id=error.constraint_name)
    if isinstance(error, _OURS_ALONE):
        return Unstorable(sqlstate=getattr(error, "sqlstate", None) or type(error).__name__)
    return None


def misfit(error: BaseException) -> bool:
    """A missing table, column or privilege: this process does not fit the database. No command of it can succeed."""
    return isinstance(error, asyncpg.SyntaxOrAccessError)
