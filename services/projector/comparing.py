"""Rows that a rebuild has written, against a fold that never saw the database and against the rows that are served."""

from typing import Any

from domain.ids import Generation, SessionId
from infra.postgres.sql import statements
from projections.audit.models import Row, difference
from projections.refolding import COLUMNS, refold
from services.projector.generations import Target
from services.projector.rebuild_report import Difference

_SQL = statements("rebuild")

_MISSING = "there is no such row"
_STRANGE = "the log has no such row"
_IDS_AT_ONCE = 1000


class Building:
    """One session on its way: `upto` is the sequence its new rows are as of. `compared`: its new rows have been held
    against those served as a whole; `doubtful` are those that have to be once more, under the lock."""

    def __init__(self, name: str, row: Any, generation: int) -> None:
        self.session_id: SessionId = row["session_id"]
        self.goal: int = row["last_sequence"]
        self.serving: int = row["generation"]
        self.upto = 0
        self.refold = refold(name, self.session_id, Generation(generation))
        self.compared = False
        self.doubtful: set[str] = set()
        self.differences: list[Difference] = []

    def differs(self, row: str, against: str, what: str) -> None:
        self.differences.append(Difference(self.session_id, row, against, what))


class Comparison:
    """Of one rebuild. Stateless but for its target: what is found is kept with each session."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._name = target.name
        self._columns = COLUMNS[target.name]
        self._place = self._columns.index("last_sequence")

    async def written(self, connection: Any, some: list[Building]) -> None:
        """What a page of each has just written, in the transaction that wrote it: read back and held against the fold,
        which lets go of it. Where the first page was all there is, the rows served are compared, too."""
        whole = [one for one in some if not one.compared and one.refold.first and one.upto == one.goal]
        if whole:
            await self._whole(connection, whole)
        parts = [one for one in some if one not in whole and one.refold.touched] if len(whole) < len(some) else []
        if parts:
            generation = self._target.generation
            found = await self._by_id(connection, [(one, generation, list(one.refold.touched)) for one in parts])
            for one in parts:
                self._as_folded(one, found[one.session_id])
                if one.compared:
                    one.doubtful.update(one.refold.touched)
        for one in some:
            one.refold.let_go()

    async def served(self, connection: Any, one: Building) -> None:
        """A long session whose new rows are all there, as of `upto`, without a lock: the server compares. What is not
        equal, which may be newer than what was built, is looked at under the lock."""
        target = self._target
        (counted,) = await connection.fetch(
            _SQL["served_rows"], target.name, [one.session_id], [target.generation], timeout=None
        )
        if counted["rows"] != one.refold.made:
            one.differs("", "fold", f"there are {counted['rows']} rows and should be {one.refold.made}")
        if self._same_version(one):
            for name, generations in (
                (f"{target.name}_unlike", (target.generation, one.serving)),
                (f"{target.name}_only", (one.serving, target.generation)),
            ):
                rows = await connection.fetch(_SQL[name], one.session_id, *generations)
                one.doubtful.update(row["id"] for row in rows)
        one.compared = True

    async def settle(self, connection: Any, some: list[Building]) -> None:
        """Under the lock, at the head: rows of which it was not known yet that they are served as they are built."""
        left = [one for one in some if one.doubtful and self._same_version(one)]
        if not left:
            return
        generation = self._target.generation
        built = await self._by_id(connection, [(one, generation, list(one.doubtful)) for one in left])
        served = await self._by_id(connection, [(one, one.serving, list(one.doubtful)) for one in left])
        for one in left:
            new, old = built[one.session_id], served[one.session_id]
            for row_id in sorted(one.doubtful):
                self._as_served(one, row_id, new.get(row_id), old.get(row_id))
            one.doubtful.clear()

    def may_flip(self, one: Building, *, accept: bool) -> bool:
        """After the last comparison. A fault of the code is never accepted."""
        if any(found.against == "fold" for found in one.differences):
            return False
        return accept or not one.differences

    async def _whole(self, connection: Any, some: list[Building]) -> None:
        """All new rows, with a word of the server's on whether the served row of the same id is equal in every column.
        Where that is not so of all rows that are served, they are looked at here."""
        ids = [one.session_id for one in some]
        serving = [one.serving if self._same_version(one) else 0 for one in some]
        generations = [self._target.generation] * len(some)
        found: list[dict[str, Row]] = [{} for _ in some]
        equal = [0] * len(some)
        for row in await connection.fetch(_SQL[f"{self._name}_beside"], ids, generations, serving):
            place, same, *_ = values = tuple(row)
            found[place - 1][values[2]] = values[2:]
            equal[place - 1] += bool(same)
        for one, new in zip(some, found, strict=True):
            self._as_folded(one, new)
            one.compared = True
        counted = {
            row["session_id"]: row["rows"]
            for row in await connection.fetch(_SQL["served_rows"], self._name, ids, serving)
        }
        unequal = [
            (one, new)
            for one, new, same in zip(some, found, equal, strict=True)
            if self._same_version(one) and not same == len(new) == counted[one.session_id]
        ]
        if unequal:
            await self._looked_at(connection, unequal)

    async def _looked_at(self, connection: Any, some: list[tuple[Building, dict[str, Row]]]) -> None:
        arrays = [one.session_id for one, _ in some], [one.serving for one, _ in some]
        served: dict[str, dict[str, Row]] = {one.session_id: {} for one, _ in some}
        for row in await connection.fetch(_SQL[self._name], *arrays):
            session_id, *values = tuple(row)
            served[session_id][values[0]] = tuple(values)
        for one, new in some:
            old = served[one.session_id]
            for row_id in sorted(new.keys() | old.keys()):
                if row_id in old and old[row_id][self._place] > one.upto:
                    one.doubtful.add(row_id)  # perhaps by events that came meanwhile
                else:
                    self._as_served(one, row_id, new.get(row_id), old.get(row_id))

    async def _by_id(self, connection: Any, wanted: list[tuple[Building, int, list[str]]]) -> dict[str, dict[str, Row]]:
        """Session -> id -> row, of those that are there."""
        places = [(one.session_id, generation, row_id) for one, generation, ids in wanted for row_id in ids]
        found: dict[str, dict[str, Row]] = {one.session_id: {} for one, _, _ in wanted}
        for begin in range(0, len(places), _IDS_AT_ONCE):
            arrays = [list(column) for column in zip(*places[begin : begin + _IDS_AT_ONCE], strict=True)]
            for row in await connection.fetch(_SQL[f"{self._name}_of"], *arrays):
                session_id, *values = tuple(row)
                found[session_id][values[0]] = tuple(values)
        return found

    def _as_folded(self, one: Building, found: dict[str, Row]) -> None:
        fold = one.refold
        for row_id, row in found.items():
            due = fold.row(row_id)
            if due != row:
                one.differs(row_id, "fold", _STRANGE if due is None else difference(self._columns, row, due))
        if len(found) < len(fold.touched):
            for row_id in sorted(fold.touched - found.keys()):
                one.differs(row_id, "fold", _MISSING)

    def _as_served(self, one: Building, row_id: str, new: Row | None, old: Row | None) -> None:
        if new is None:
            if old is not None:
                one.differs(row_id, "served", _STRANGE)
        elif old is None or old[self._place] > one.upto:
            one.differs(row_id, "served", _MISSING)
        elif old != new:
            one.differs(row_id, "served", difference(self._columns, old, new))

    def _same_version(self, one: Building) -> bool:
        return self._target.versions.get(one.serving) == self._target.version
