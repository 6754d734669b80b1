"""How a command ends when it does not end well: exit code 1 or 2 and one line on standard error."""

import sys
from typing import NoReturn

FINE = 0
FOUND_WRONG = 1
"""It ran and found something wrong."""
COULD_NOT_RUN = 2
"""It could not run; one line says why and what to do."""


class CannotRun(Exception):
    """The command cannot do its work. The text is one line: why, and what to do about it."""


def say(line: str) -> None:
    """One line on standard error, where it disturbs no output that somebody pipes on."""
    sys.stderr.write(f"turnlog: {line}\n")
    sys.stderr.flush()


def one_line(error: BaseException) -> str:
    """The error as one line; its type where it has no text."""
    return " ".join(str(error).split()) or type(error).__name__


def stop(line: str) -> NoReturn:
    """Say why and exit with 2."""
    say(line)
    raise SystemExit(COULD_NOT_RUN)
