"""Statements by file and name: `statements("pipeline")["append"]` is the block `-- name: append` of pipeline.sql."""

from functools import cache
from importlib.resources import files

from domain.ports import Statement
from domain.statements import parse_statements


@cache
def statements(file: str) -> dict[str, Statement]:
    """All statements of `sql/queries/{file}.sql`. Raises FileNotFoundError."""
    text = (files("infra.postgres") / "sql" / "queries" / f"{file}.sql").read_text(encoding="utf-8")
    return parse_statements(text)
