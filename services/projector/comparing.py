"""Rows that a rebuild has written, against a second fold that never saw the database and against the rows that are
served."""

from typing import Any

from domain.ids import Generation, SessionId
from infra.postgres.sql import statements
from projections.audit.models import Row, difference
from projections.refolding import COLUMNS, FreshRows, Refold
from services.projector.generations import Target
from services.projector.rebuild_report import Difference

_SQL = statements("rebuild")


class Building:
    """One session on its way: `upto` is the sequence its new rows are as of, `compared_to` the one of the last
    comparison. `places`: rows that must be, and the last event that each shows; `built`, `served`: those that are."""

    def __init__(self, name: str, row: Any, generation: int) -> None:
        self.session_id: SessionId = row["session_id"]
        self.goal: int = row["last_sequence"]
        self.serving: int = row["generation"]
        self.upto = 0
        self.refold = Refold(name, self.session_id, Generation(generation))
        self.fresh = FreshRows(name, self.session_id)
        self.places: dict[str, int] = {}
        self.built: set[str] = set()
        self.served: set[str] = set()
        self.compared_to = 0
        self.differences: list[Difference] = []


class Comparison:
    """Of one rebuild. Stateless but for its target: what is found is kept with each session."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._columns = COLUMNS[target.name]
        self._place = self._columns.index("last_sequence")

    async def compare(self, connection: Any, some: list[Building]) -> None:
        """Rows that changed since the last time. A served row that is newer than the fold is compared later, under the
        lock."""
        changed = [one for one in some if one.upto > one.compared_to]
        for one in changed:
            one.places = one.fresh.places()
        whole = [one for one in changed if not one.compared_to]
        twins = await self._whole(connection, whole) if whole else set()
        later = [one for one in changed if one.compared_to]
        await self._rows(connection, later, "fold")
        # Where the server has not found each served row to be the new one's equal, it is looked at here.
        await self._rows(connection, [one for one in changed if self._same_version(one) and one not in twins], "served")
        for one in changed:
            one.compared_to = one.upto

    def may_flip(self, one: Building, *, accept: bool) -> bool:
        """After the last comparison; adds rows that are not there to the differences. A fault of the code is never
        accepted."""
        missing = {"fold": one.places.keys() - one.built}
        if self._same_version(one):
            missing["served"] = one.places.keys() - one.served
        for against, ids in missing.items():
            one.differences += [Difference(one.session_id, row, against, "there is no such row") for row in sorted(ids)]
        if any(found.against == "fold" for found in one.differences):
            return False
        return accept or not one.differences

    async def _whole(self, connection: Any, some: list[Building]) -> set[Building]:
        """All new rows, with a word of the server's on whether the served row of the same id is equal in every column;
        sessions of which that is true for all rows that are served."""
        by_id: dict[str, Building] = {one.session_id: one for one in some}
        serving = [one.serving if self._same_version(one) else 0 for one in some]
        generations = [self._target.generation] * len(some)
        rows = await connection.fetch(_SQL[f"{self._target.name}_beside"], list(by_id), generations, serving)
        unequal: set[Building] = set()
        equal: dict[str, int] = {}
        for row in rows:
            place, same, *_ = values = tuple(row)
            one = some[place - 1]
            self._judge(one, values[2:], "fold")
            if same:
                one.served.add(values[2])
                equal[one.session_id] = equal.get(one.session_id, 0) + 1
            else:
                unequal.add(one)
        counted = await connection.fetch(_SQL["served_rows"], self._target.name, list(by_id), serving)
        unequal |= {by_id[row["session_id"]] for row in counted if row["rows"] != equal.get(row["session_id"], 0)}
        for one in unequal:
            one.served.clear()
        return set(some) - unequal

    async def _rows(self, connection: Any, some: list[Building], against: str) -> None:
        """Rows that are newer than the last comparison, one by one."""
        if not some:
            return
        by_id = {one.session_id: one for one in some}
        target = self._target
        rows = await connection.fetch(
            _SQL[target.name],
            list(by_id),
            [target.generation if against == "fold" else one.serving for one in some],
            [one.compared_to for one in some],
        )
        seen: set[str] = set()
        for row in rows:
            session_id, *values = tuple(row)
            seen.add(values[0])
            self._judge(by_id[session_id], tuple(values), against)
        for one in some:
            self._stale(one, seen, against)

    def _judge(self, one: Building, row: Row, against: str) -> None:
        if against == "served" and row[self._place] > one.upto:
            return
        (one.built if against == "fold" else one.served).add(row[0])
        due = one.fresh.row(row[0])
        if due != row:
            what = "the log has no such row" if due is None else difference(self._columns, row, due)
            one.differences.append(Difference(one.session_id, row[0], against, what))

    def _stale(self, one: Building, seen: set[str], against: str) -> None:
        """Rows that the newest events should have changed and did not."""
        known = one.built if against == "fold" else one.served
        for row_id, place in one.places.items():
            if place > one.compared_to and row_id in known and row_id not in seen:
                one.differences.append(Difference(one.session_id, row_id, against, "it is older than its newest event"))

    def _same_version(self, one: Building) -> bool:
        return self._target.versions.get(one.serving) == self._target.version
