"""Named SQL statements out of .sql text: `-- name: append` starts a statement, the next name or the end closes it."""

import re

from domain.ports import Statement

_NAME = re.compile(r"^-- name: ([a-z_]+)\s*$", re.MULTILINE)


def parse_statements(text: str) -> dict[str, Statement]:
    """Name -> statement. Raises ValueError on a name given twice."""
    pieces = _NAME.split(text)
    found: dict[str, Statement] = {}
    for name, body in zip(pieces[1::2], pieces[2::2], strict=True):
        if name in found:
            raise ValueError(f"statement {name} is there twice")
        found[name] = Statement(body.strip().rstrip(";"))
    return found
