"""How far each reader of the feed has come."""

from domain.ports import FeedPosition
from infra.postgres.pool import Pool, fetch
from infra.postgres.sql import statements

_SQL = statements("checkpoints")


class PostgresCheckpoints:
    """One place a name. All methods raise StoreUnavailable."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def load(self, name: str) -> FeedPosition | None:
        """The place that was kept last; None for a name that never began."""
        rows = await fetch(self._pool, _SQL["load"], name)
        return FeedPosition(int(rows[0]["transaction_id"]), rows[0]["position"]) if rows else None

    async def begin(self, name: str, at: FeedPosition) -> bool:
        """Keep a first place; False where another process was faster."""
        return bool(await fetch(self._pool, _SQL["begin"], name, str(at.transaction_id), at.position))

    async def advance(self, name: str, before: FeedPosition, after: FeedPosition) -> bool:
        """Compare and set; False where another process has moved it, whose place is to be loaded then."""
        places = (str(before.transaction_id), before.position, str(after.transaction_id), after.position)
        return bool(await fetch(self._pool, _SQL["advance"], name, *places))
