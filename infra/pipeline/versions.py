"""Which version of a projection writes which generation of rows, and whether this process has it."""

from collections.abc import Iterable
from collections.abc import Sequence as Many
from typing import Any

import msgspec

from domain.errors import VersionMismatch
from domain.ids import Generation
from domain.ports import SessionProjection
from domain.session import Head
from infra.pipeline.batch import Birth
from infra.postgres.sql import statements

_SQL = statements("pipeline")


class Generations(msgspec.Struct, frozen=True):
    """The table `projection_generations`: (name, generation) -> version."""

    versions: dict[tuple[str, int], int] = {}

    def newest(self, name: str) -> Generation:
        """The generation that new sessions are born in."""
        return Generation(max((g for n, g in self.versions if n == name), default=1))

    def birth(self) -> Birth:
        return Birth(turns=self.newest("turns"), messages=self.newest("messages"))


async def read_generations(connection: Any) -> Generations:
    """One plain read; the table has a handful of rows."""
    rows = await connection.fetch(_SQL["generations"])
    return Generations({(row["name"], row["generation"]): row["version"] for row in rows})


def served_by(head: Head) -> dict[str, Generation]:
    """Projection name -> the generation this session is served from."""
    return {"turns": head.turns_generation, "messages": head.messages_generation}


class Versions:
    """The projections this process carries, by name and version."""

    def __init__(self, projections: Many[SessionProjection]) -> None:
        self._carried = {(p.name, p.version): p for p in projections}

    def writing(self, generations: Generations, name: str, generation: Generation) -> SessionProjection:
        """The projection that writes that generation. Raises VersionMismatch: this process must not append there."""
        need = generations.versions.get((name, generation))
        found = None if need is None else self._carried.get((name, need))
        if found is None:
            raise VersionMismatch(name=name, have=self._have(name), need=need if need is not None else "newer")
        return found

    def check(self, generations: Generations, places: Iterable[tuple[str, Generation]]) -> None:
        """Raises VersionMismatch unless all these generations can be written."""
        for name, generation in places:
            self.writing(generations, name, generation)

    def _have(self, name: str) -> str:
        return ", ".join(str(version) for known, version in sorted(self._carried) if known == name) or "none"
