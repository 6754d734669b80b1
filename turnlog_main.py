"""Entry of the `turnlog` command: makes Turnlog's own packages win, whatever lies on the import path.

`services`, `domain`, `projections` and `infra` are names a user's own code may have too. With an editable install and
`PYTHONPATH=.` theirs would be found first and the command would die in a stranger's module. So this module, which alone
has a name nobody else uses, puts a finder in front of all others that answers for exactly these names, from exactly
this checkout, and only then imports the command line. Everything else is found as usual: PYTHONPATH, the standard
library, site-packages, and at the very end the working directory. The checkout itself is not put on the path, so a
user's `tests` or `docs` package is not hidden by ours.

It happens on import, not in `main()`, because spawned children of a process re-import the main module and must be
pinned before they unpickle anything of ours.
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


pin()


def main() -> None:
    """Run the command line."""
    from services.cli.main import main as run

    run()


if __name__ == "__main__":
    main()
