"""What session-scoped projections share: how they find their SQL."""

from functools import cache
from importlib.resources import files

from domain.ports import Statement
from domain.statements import parse_statements


@cache
def queries(package: str) -> dict[str, Statement]:
    """The named statements of `queries.sql` in that package."""
    return parse_statements((files(package) / "queries.sql").read_text(encoding="utf-8"))
