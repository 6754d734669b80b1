"""The `turns` read model: one row a turn, the state that `domain.turn` folds.

The fold itself is `evolve`, which the pipeline has run already to decide; this writes down what it came to.
"""

from collections.abc import Sequence as Many

from domain.ports import SessionChange, Transaction
from domain.turn import ACTIVE_STATUS
from domain.turn_row import Place, changed_rows, new_rows
from projections.base import queries

_SQL = queries("projections.turns")


class Turns:
    """Implements `domain.ports.SessionProjection`."""

    name = "turns"
    version = 1

    async def apply(self, changes: Many[SessionChange], tx: Transaction) -> None:
        """Two statements at most. Turns that stop being active are written first: that at most one turn of a session is
        active is a unique index, checked row by row."""
        ended: list[Place] = []
        started: list[Place] = []
        fresh: list[Place] = []
        for change in changes:
            for turn_id, turn in change.after.items():
                known = started if turn.status in ACTIVE_STATUS else ended
                rows = fresh if change.before[turn_id] is None else known
                rows.append((change.session_id, change.generation, turn))
        if ended:
            await tx.execute(_SQL["update"], changed_rows(ended))
        if fresh:
            await tx.execute(_SQL["save"], changed_rows(started), new_rows(fresh))
        elif started:
            await tx.execute(_SQL["update"], changed_rows(started))
