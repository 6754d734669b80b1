"""Which feed projections a process knows: the built-in ones and those of `--projection module:Name`."""

from collections.abc import Sequence
from typing import cast

from domain.ports import FeedProjection
from infra.postgres.feed_slots import BadProjection, check
from projections.feeding import feed_projections
from services.paths import load

_PARTS = ("name", "version", "tables", "definition", "apply", "erase")


def all_projections(targets: Sequence[str]) -> list[FeedProjection]:
    """Built-in ones first. A target is a class, which is called without arguments, or an object. Raises
    UnloadableObject, BadProjection."""
    found = list(feed_projections())
    for target in targets:
        loaded = load(target)
        made = loaded() if isinstance(loaded, type) else loaded
        missing = [part for part in _PARTS if not hasattr(made, part)]
        if missing:
            raise BadProjection(name=target, reason=f"it has no {', '.join(missing)}")
        projection = cast(FeedProjection, made)
        check(projection)
        if projection.name in {known.name for known in found}:
            raise BadProjection(name=target, reason=f"there is one named {projection.name} already")
        taken = {table for known in found for table in known.tables} & set(projection.tables)
        if taken:
            raise BadProjection(name=target, reason=f"another one has a table {min(taken)}")
        found.append(projection)
    return found
