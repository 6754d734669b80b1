"""The lock files: complete, hashed, and free of anybody's addresses."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
LOCKS = sorted((ROOT / "requirements").glob("*.lock"))
PIN = re.compile(r"^([a-z0-9._-]+)(?:\[[a-z0-9,_-]+\])?==(\S+)", re.MULTILINE)


def pins(lock: str) -> dict[str, str]:
    return dict(PIN.findall((ROOT / "requirements" / lock).read_text()))


def test_there_are_locks() -> None:
    assert {lock.name for lock in LOCKS} == {"bench.lock", "bootstrap.lock", "dev.lock", "runtime.lock", "system.lock"}


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_a_lock_names_versions_and_hashes_and_no_place(lock: Path) -> None:
    text = lock.read_text()
    assert not re.search(r"://|^-|--(?!hash=)|@ |/", text, re.MULTILINE)
    entries = re.split(r"\n(?=[a-z])", text)
    assert all("--hash=sha256:" in entry for entry in entries if entry.strip())


@pytest.mark.parametrize(
    ("lock", "extras"), [("dev.lock", ["dev"]), ("bench.lock", ["dev", "bench"]), ("runtime.lock", [])]
)
def test_a_lock_has_what_the_project_asks_for(lock: str, extras: list[str]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = list(project["dependencies"])
    for extra in extras:
        wanted += project["optional-dependencies"][extra]
    found = pins(lock)
    for text in wanted:
        requirement = Requirement(text)
        assert requirement.specifier.contains(found[requirement.name.lower()]), text


def test_all_locks_agree() -> None:
    dev = pins("dev.lock")
    for lock in ("bootstrap.lock", "runtime.lock", "bench.lock"):
        assert {name: version for name, version in pins(lock).items() if dev.get(name, version) != version} == {}
