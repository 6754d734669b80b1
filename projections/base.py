"""What projections share: how they find their SQL."""

from functools import cache
from importlib.resources import files

from domain.ports import Statement
from domain.statements import parse_statements


@cache
def queries(package: str) -> dict[str, Statement]:
    """The named statements of `queries.sql` in that package."""
    return parse_statements((files(package) / "queries.sql").read_text(encoding="utf-8"))


@cache
def definition(package: str) -> str:
    """The text of `tables.sql` in that package."""
    return (files(package) / "tables.sql").read_text(encoding="utf-8")
