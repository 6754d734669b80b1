"""What a rebuild has left behind: old generations of `turns` and `messages`, the previous tables of a feed projection.

It stays until somebody says that the way back is not needed any more, because nothing here can know that.
"""

import msgspec

from infra.postgres.feed_slots import PostgresFeedSlots
from infra.postgres.pool import Pool, fetch
from infra.postgres.sql import statements

_SQL = statements("rebuild")
_LOWEST = "00000000-0000-0000-0000-000000000000"
_SESSIONS_AT_ONCE = 100


class Forgotten(msgspec.Struct, frozen=True):
    """`rows`: of generations that their session was not served from. `left`: sessions that are still served from an
    older generation than the newest; their rows stay, and so does that generation."""

    rows: int
    left: int


async def forget_generations(pool: Pool, name: str) -> Forgotten:
    """Of `turns` or `messages`; for a pool of `rebuild_pool`, within `alone`, some sessions at a time. Raises
    StoreUnavailable."""
    rows, after = 0, _LOWEST
    while page := await fetch(pool, _SQL["sessions_after"], after, _SESSIONS_AT_ONCE):
        ids = [row["session_id"] for row in page]
        rows += (await fetch(pool, _SQL["forget_rows"], name, ids))[0]["gone"]
        after = ids[-1]
    await fetch(pool, _SQL["forget_generations"], name)
    return Forgotten(rows, (await fetch(pool, _SQL["older"], name))[0]["sessions"])


async def forget_previous(slots: PostgresFeedSlots, name: str) -> bool:
    """Drop the previous tables of a feed projection; False where there were none."""
    there = await slots.place(name, "previous") is not None
    await slots.drop(name, "previous")
    return there
