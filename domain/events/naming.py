"""What a type of event may be called: it stands alone in a line of a stream, where a line break would end the frame."""

import re
from functools import lru_cache

LONGEST = 100
_TYPE = re.compile(r"[a-z0-9_]+(?:\.[a-z0-9_]+)*")


@lru_cache(maxsize=1_024)
def is_type(name: str) -> bool:
    """Words of lower-case letters, digits and underscores with dots between them, 100 characters at most. The database
    holds the same rule (migration 0014)."""
    return len(name) <= LONGEST and _TYPE.fullmatch(name) is not None


def is_step(name: str) -> bool:
    """A runtime's own name for what it reports: any text of one line. Dialects put it into lines of their own."""
    return name.isprintable()
