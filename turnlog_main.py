"""Entry of the `turnlog` command: makes Turnlog's own packages win, whatever lies on the import path.

`services`, `domain`, `projections` and `infra` are names a user's own code may have too. With an editable install and
`PYTHONPATH=.` theirs would be found first and the command would die in a stranger's module. So this module, which like
`turnlog_packages` has a name nobody else uses, puts a finder in front of all others that answers for exactly these
names, from exactly this checkout, and only then imports the command line. Everything else is found as usual:
PYTHONPATH, the standard library, site-packages, and at the very end the working directory. The checkout itself is not
put on the path, so a user's `tests` or `docs` package is not hidden by ours.

It happens on import, not in `main()`, because spawned children of a process re-import the main module and must be
pinned before they unpickle anything of ours.
"""

from turnlog_packages import pin

pin()


def main() -> None:
    """Run the command line."""
    from services.cli.main import main as run

    run()


if __name__ == "__main__":
    main()
