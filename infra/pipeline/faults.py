"""What an error of the database means for the commands that met it."""

import asyncpg

from domain.commands import Command
from domain.errors import AttachmentMissing, IdempotencyMismatch, InternalFault, TurnIdTaken, TurnlogError, Unstorable
from infra.postgres.pool import UNREACHABLE

FAULTS: tuple[type[BaseException], ...] = (asyncpg.PostgresError, *UNREACHABLE)
"""Everything that running a group can meet; anything else is a fault of ours."""

_VALUES = (asyncpg.DataError, asyncpg.exceptions._base.DataError, asyncpg.ProgramLimitExceededError)
"""A value that the command brought cannot be stored."""


def refusal(error: BaseException, command: Command) -> TurnlogError | None:
    """What a single command gets that broke the store's rules all by itself; None where a retry may help.

    Of the constraints only those on names that callers choose can be a caller's doing. Any other one says that
    decisions and stored rows do not fit together: a fault of ours, which no other name would avoid."""
    if isinstance(error, asyncpg.IntegrityConstraintViolationError):
        return _taken(error.constraint_name or "", command)
    if isinstance(error, _VALUES):
        return Unstorable(sqlstate=getattr(error, "sqlstate", None) or type(error).__name__)
    return None


def _taken(constraint: str, command: Command) -> TurnlogError:
    match constraint:
        case "turns_pkey":
            return TurnIdTaken(external_id=getattr(command, "turn_id", "?"))
        case "turns_external_id":
            return TurnIdTaken(external_id=getattr(command, "external_id", "?"))
        case "turns_idempotency_key":
            return IdempotencyMismatch()
        case "blob_references_sha256_fkey":
            return AttachmentMissing()
        case _:
            return InternalFault()


def misfit(error: BaseException) -> bool:
    """A missing table, column or privilege: this process does not fit the database. No command of it can succeed."""
    return isinstance(error, asyncpg.SyntaxOrAccessError)
