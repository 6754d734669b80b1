"""The `turns` read model: one row a turn, the state that `domain.turn` folds.

The fold itself is `evolve`, which the pipeline has run already to decide; this writes down what it came to.
"""

from collections.abc import Sequence as Many

from domain.ports import SessionChange, Transaction
from domain.turn import ACTIVE_STATUS, Turn
from domain.turn_row import CHANGING, FIXED, columns
from projections.base import queries

_SQL = queries("projections.turns")


class Turns:
    """Implements `domain.ports.SessionProjection`."""

    name = "turns"
    version = 1

    async def apply(self, changes: Many[SessionChange], tx: Transaction) -> None:
        """Two statements at most. Turns that stop being active are written first: that at most one turn of a session is
        active is a unique index, checked row by row."""
        ended: list[tuple[SessionChange, Turn]] = []
        started: list[tuple[SessionChange, Turn]] = []
        fresh: list[tuple[SessionChange, Turn]] = []
        for change in changes:
            for turn_id, turn in change.after.items():
                if change.before[turn_id] is None:
                    fresh.append((change, turn))
                elif turn.status in ACTIVE_STATUS:
                    started.append((change, turn))
                else:
                    ended.append((change, turn))
        if ended:
            await tx.execute(_SQL["update"], *_places(ended), *columns([turn for _, turn in ended], CHANGING))
        if started:
            await tx.execute(_SQL["update"], *_places(started), *columns([turn for _, turn in started], CHANGING))
        if fresh:
            turns = [turn for _, turn in fresh]
            await tx.execute(
                _SQL["insert"],
                [change.session_id for change, _ in fresh],
                [change.generation for change, _ in fresh],
                *columns(turns, FIXED),
                *columns(turns, CHANGING),
            )


def _places(rows: list[tuple[SessionChange, Turn]]) -> tuple[list[str], list[int], list[str]]:
    return (
        [change.session_id for change, _ in rows],
        [change.generation for change, _ in rows],
        [turn.turn_id for _, turn in rows],
    )
