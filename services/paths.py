"""Loads users' agent objects (`module:name`) and explains in one line why one cannot be loaded.

Users' modules come from PYTHONPATH and, last, from the working directory. Turnlog's own packages win over same-named
ones of the user's (see `turnlog_packages`); whoever trips over that is told which of theirs clashed, and what to do.
"""

import sys
from dataclasses import dataclass
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path

from turnlog_packages import OWN, ROOT


class UnloadableObject(ImportError):
    """A `module:name` that cannot be loaded; the text is one line that says why and what to do."""


@dataclass(frozen=True, slots=True)
class Clash:
    """A module of the user's that has the name of one of Turnlog's and is therefore not importable."""

    name: str
    place: Path

    def __str__(self) -> str:
        return (
            f"`{self.name}` at {self.place} has the name of one of Turnlog's own packages, which wins:"
            f" rename it or move it into a package of your own (say, myapp.{self.name})"
        )


def clashes() -> list[Clash]:
    """What on the import path is hidden by a package of ours; empty where nothing clashes."""
    found: list[Clash] = []
    for name in OWN:
        for entry in sys.path:
            place = _place_of(name, Path(entry or ".").resolve())
            if place is not None:
                found.append(Clash(name, place))
                break
    return found


def load(target: str) -> object:
    """The object that `module:name` means; `name` may be dotted.

    Raises UnloadableObject where the module or the name is missing. What the module itself raises while it is imported
    (a syntax error, its own failing code) goes through unchanged, because its traceback is what its author needs.
    """
    module_name, attribute = _taken_apart(target)
    try:
        found: object = import_module(module_name)
    except ImportError as error:
        raise UnloadableObject(_why(module_name, error)) from error
    for part in attribute.split("."):
        try:
            found = getattr(found, part)
        except AttributeError as error:
            raise UnloadableObject(_no_attribute(module_name, attribute)) from error
    return found


def require_module(target: str) -> None:
    """Raises UnloadableObject where the module of `module:name` is nowhere, without importing what is the user's."""
    module_name, _ = _taken_apart(target)
    top = module_name.partition(".")[0]
    if find_spec(top) is None:
        raise UnloadableObject(_why(module_name, ModuleNotFoundError(name=top)))


def _taken_apart(target: str) -> tuple[str, str]:
    module_name, colon, attribute = target.partition(":")
    if not colon or not module_name or not attribute:
        raise UnloadableObject(f"`{target}` is not of the form module:name")
    return module_name, attribute


def _place_of(name: str, entry: Path) -> Path | None:
    if entry == ROOT:
        return None
    spec = PathFinder.find_spec(name, [str(entry)])
    if spec is None:
        return None
    places = [spec.origin] if spec.origin else list(spec.submodule_search_locations or [])
    place = Path(places[0]).resolve()
    return None if place.is_relative_to(ROOT / name) or place == ROOT / f"{name}.py" else place


def _clash_with(module_name: str | None) -> Clash | None:
    top = (module_name or "").partition(".")[0]
    return next((clash for clash in clashes() if clash.name == top), None)


def _why(module_name: str, error: ImportError) -> str:
    clash = _clash_with(error.name) or _clash_with(module_name)
    if clash is not None:
        return f"cannot import `{error.name or module_name}`: {clash}"
    if isinstance(error, ModuleNotFoundError) and error.name in (module_name, module_name.partition(".")[0]):
        return f"no module `{error.name}` on PYTHONPATH or in {Path.cwd()}: check the name, or set PYTHONPATH"
    return f"`{module_name}` cannot be imported: {error}"


def _no_attribute(module_name: str, attribute: str) -> str:
    clash = _clash_with(module_name)
    if clash is not None:
        return f"`{module_name}` has no `{attribute}`: {clash}"
    place = getattr(sys.modules[module_name], "__file__", None)
    return f"`{module_name}` ({place}) has no `{attribute}`: check the name after the colon"
