"""Turnlog's packages win over same-named ones of the user's, whose other modules are found as usual."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from turnlog_packages import OWN

STRANGER = "raise SystemExit('a stranger was imported')\n"
LOAD = """
import turnlog_main
from services.paths import UnloadableObject, load
try:
    print("loaded", load({target!r}))
except UnloadableObject as error:
    print("refused", error)
"""


@pytest.fixture
def users(tmp_path: Path) -> Path:
    """A directory of a user's with packages of all our names, in every shape a package has."""
    for name in OWN[:3]:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(STRANGER)
    (tmp_path / "infra").mkdir()
    (tmp_path / "infra" / "bot.py").write_text("agent = 'theirs'\n")
    (tmp_path / "turnlog.py").write_text(STRANGER)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "mine.py").write_text("agent = 'my tests package'\n")
    (tmp_path / "mybot.py").write_text("class Group:\n    agent = 'mine'\n")
    (tmp_path / "broken.py").write_text("import nothing_of_that_name\n")
    (tmp_path / "confused.py").write_text("from infra.bot import agent\n")
    (tmp_path / "sys_first.py").write_text("import infra\nagent = infra.__file__\n")
    return tmp_path


def run(directory: Path, *argv: str, pythonpath: str | None) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    if pythonpath is not None:
        environment["PYTHONPATH"] = pythonpath
    return subprocess.run(argv, cwd=directory, env=environment, capture_output=True, text=True, check=False)


def loaded(directory: Path, target: str, pythonpath: str | None = ".") -> str:
    done = run(directory, sys.executable, "-c", LOAD.format(target=target), pythonpath=pythonpath)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("pythonpath", [None, "."])
def test_the_command_starts_among_strangers_of_the_same_names(users: Path, pythonpath: str | None) -> None:
    command = Path(sys.executable).with_name("turnlog")
    done = run(users, str(command), "--help", pythonpath=pythonpath)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Usage" in done.stdout


@pytest.mark.parametrize("pythonpath", [None, "."])
def test_a_users_module_is_found_and_ours_do_not_hide_it(users: Path, pythonpath: str | None) -> None:
    assert loaded(users, "mybot:Group.agent", pythonpath) == "loaded mine"
    assert loaded(users, "tests.mine:agent", pythonpath) == "loaded my tests package"


def test_ours_is_what_a_users_module_gets_by_our_name(users: Path) -> None:
    assert loaded(users, "sys_first:agent").endswith(str(Path("infra", "__init__.py")))
    assert str(users) not in loaded(users, "sys_first:agent")


@pytest.mark.parametrize("target", ["infra.bot:agent", "confused:agent"])
def test_who_trips_over_the_names_is_told_which_module_and_what_to_do(users: Path, target: str) -> None:
    said = loaded(users, target)
    assert said.startswith("refused cannot import `infra.bot`: `infra` at ")
    assert str(users / "infra") in said
    assert "rename it or move it into a package of your own" in said
    assert "\n" not in said


def test_other_mistakes_are_told_apart(users: Path) -> None:
    assert "is not of the form module:name" in loaded(users, "mybot")
    assert "no module `nowhere` on PYTHONPATH or in" in loaded(users, "nowhere:agent")
    assert f"`mybot` ({users / 'mybot.py'}) has no `other`" in loaded(users, "mybot:other")
    assert "`broken` cannot be imported: No module named 'nothing_of_that_name'" in loaded(users, "broken:agent")


def test_an_own_error_of_the_users_module_keeps_its_traceback(users: Path) -> None:
    (users / "failing.py").write_text("def f():\n    raise ValueError('theirs')\nf()\n")
    done = run(users, sys.executable, "-c", LOAD.format(target="failing:agent"), pythonpath=".")
    assert done.returncode == 1
    assert "failing.py" in done.stderr
    assert "ValueError: theirs" in done.stderr


def test_a_stranger_that_was_imported_first_is_named_in_one_line(users: Path) -> None:
    done = run(users, sys.executable, "-c", "import infra, turnlog_main", pythonpath=".")
    assert done.returncode == 2
    assert done.stderr.startswith(f"turnlog: `infra` of {users / 'infra'} was imported before")
    assert done.stderr.count("\n") == 1


def test_a_spawned_child_is_pinned_too(users: Path) -> None:
    (users / "parent.py").write_text(
        "import turnlog_main\n"
        "import multiprocessing\n"
        "from services.paths import load\n"
        "if __name__ == '__main__':\n"
        "    with multiprocessing.get_context('spawn').Pool(1) as pool:\n"
        "        print(pool.apply(load, ('mybot:Group.agent',)))\n"
    )
    done = run(users, sys.executable, "parent.py", pythonpath=".")
    assert (done.stdout, done.stderr) == ("mine\n", "")


def test_what_pins_the_packages_imports_none_of_them(users: Path) -> None:
    """Neither it nor the entry may need what they pin: there was a circle through the command line once."""
    told = "import sys, turnlog_packages; print([name for name in turnlog_packages.OWN if name in sys.modules])"
    assert run(users, sys.executable, "-c", told, pythonpath=None).stdout == "[]\n"
    entry = "import sys, services.paths; print('turnlog_main' in sys.modules, 'services.cli' in sys.modules)"
    done = run(users, sys.executable, "-c", "import turnlog_packages; turnlog_packages.pin();" + entry, pythonpath=".")
    assert (done.stdout, done.stderr) == ("False False\n", "")
