"""What an error of the database means for the commands that met it."""

import asyncpg

from domain.errors import Invalid, TurnIdTaken, TurnlogError
from infra.postgres.pool import UNREACHABLE

FAULTS: tuple[type[BaseException], ...] = (asyncpg.PostgresError, *UNREACHABLE)
"""Everything that running a group can meet; anything else is a bug of ours and ends the process's pipeline."""

_OURS_ALONE = (
    asyncpg.IntegrityConstraintViolationError,
    asyncpg.DataError,
    asyncpg.exceptions._base.DataError,
    asyncpg.ProgramLimitExceededError,
)


class Unstorable(Invalid):
    """The store refused the values of this one command; trying again would not help."""

    code = "unstorable"
    sentence = "The store refused a value of this command ({sqlstate})."


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
