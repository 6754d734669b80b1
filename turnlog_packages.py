"""Turnlog's own top-level packages, and what makes them win over a user's packages of the same names.

Standard library only, and nothing of ours is imported here: this module runs before the packages that it pins.
"""

import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

OWN = ("services", "domain", "projections", "infra", "turnlog")
ROOT = Path(__file__).resolve().parent


class OwnPackages(MetaPathFinder):
    """Answers for the top-level names in OWN from ROOT and for nothing else."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if path is not None or fullname not in OWN:
            return None
        return PathFinder.find_spec(fullname, [str(ROOT)])


def _file_of(module: ModuleType) -> Path:
    places = [module.__file__] if module.__file__ else list(getattr(module, "__path__", []))
    return Path(places[0]).resolve() if places else Path("(unknown)")


def pin() -> None:
    """Put the finder in front and the working directory last; repeating it changes nothing.

    Exits with code 2 and one line if a stranger's module of one of our names was imported before us (by a sitecustomize
    or a .pth file): then nothing we could do here would make the two fit.
    """
    for name in OWN:
        module = sys.modules.get(name)
        if module is not None and not _file_of(module).is_relative_to(ROOT):
            line = (
                f"turnlog: `{name}` of {_file_of(module)} was imported before Turnlog's package of that name;"
                " rename it, or keep it out of sitecustomize and .pth files"
            )
            sys.stderr.write(line + "\n")
            raise SystemExit(2)
    if not any(isinstance(finder, OwnPackages) for finder in sys.meta_path):
        sys.meta_path.insert(0, OwnPackages())
    here = os.getcwd()
    if here not in sys.path and "" not in sys.path:
        sys.path.append(here)
