"""What a process says at its start when the data and its code have different versions of a read model."""

from collections.abc import Sequence as Many

from domain.ports import SessionProjection
from infra.pipeline.versions import read_generations
from infra.postgres.pool import Pool


async def version_notices(pool: Pool, projections: Many[SessionProjection]) -> list[str]:
    """One line for each read model of sessions whose newest rows are of another version than the newest in this code,
    with the command to run."""
    async with pool.acquire() as connection:
        generations = await read_generations(connection)
    lines = []
    for name in sorted({projection.name for projection in projections}):
        have = max(p.version for p in projections if p.name == name)
        stored = generations.versions.get((name, generations.newest(name)), 0)
        if stored < have:
            lines.append(f"{name} has version {stored} and this release {have}: run: turnlog rebuild {name}")
        elif stored > have:
            lines.append(f"{name} has version {stored} and this release only {have}: upgrade this process")
    return lines
