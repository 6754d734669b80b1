"""Under which account the embedded servers run, and how a command line is made to run under it.

PostgreSQL refuses to run as root, and nats-server need not. So as root both run, through `setpriv`, under an
unprivileged account that owns their data: the owner of existing data, else the user who called sudo, else `nobody`.
Anybody else runs them as themselves. No account is created and no directory of anybody's is opened.
"""

import os
import pwd
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from infra.embedded.errors import UnreachablePlace


@dataclass(frozen=True, slots=True)
class Account:
    """A uid and gid; `switched` says that it is not the caller's own, so that `setpriv` is needed."""

    uid: int
    gid: int
    switched: bool

    def command(self, argv: list[str], *, on_parent_death: str | None = None) -> list[str]:
        """`argv` to be run under this account; with `on_parent_death` ("INT", "TERM") it gets that signal when the
        thread that started it ends, so that a killed parent leaves no server behind.

        Without setpriv (not Linux) nothing ends the child for us; the data directory's lock then tells of it.
        """
        setpriv = shutil.which("setpriv")
        if setpriv is None:
            if self.switched:
                raise UnreachablePlace(
                    place="/", uid=self.uid, remedy="install setpriv (util-linux), or do not run as root"
                )
            return argv
        words = [setpriv, "--no-new-privs"]
        if self.switched:
            words += [f"--reuid={self.uid}", f"--regid={self.gid}", "--clear-groups"]
        if on_parent_death is not None:
            words += [f"--pdeathsig={on_parent_death}"]
        return [*words, "--", *argv]

    def reaches(self, path: Path) -> bool:
        """Whether this account can use `path`, asked of the kernel, since modes alone do not know of ACLs."""
        if not self.switched:
            return os.access(path, os.R_OK | os.X_OK)
        words = self.command(["/usr/bin/env", "test", "-r", str(path), "-a", "-x", str(path)])
        done = subprocess.run(words, cwd="/", stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if done.returncode not in (0, 1) or "setpriv" in done.stderr:
            raise UnreachablePlace(
                place=path,
                uid=self.uid,
                remedy=f"setpriv said: {done.stderr.strip() or done.returncode}; run as an ordinary user instead",
            )
        return done.returncode == 0

    def own(self, path: Path) -> None:
        """Hand a file or directory (not what is in it) to this account."""
        if self.switched:
            os.chown(path, self.uid, self.gid, follow_symlinks=False)


def choose(existing: Path) -> Account:
    """The account for the servers of a data directory; `existing` is its data, if there is any yet."""
    if os.geteuid() != 0:
        return Account(os.geteuid(), os.getegid(), switched=False)
    if existing.exists() and existing.stat().st_uid != 0:
        found = existing.stat()
        return Account(found.st_uid, found.st_gid, switched=True)
    caller = int(os.environ.get("SUDO_UID", "0"))
    if caller != 0:
        return Account(caller, int(os.environ.get("SUDO_GID", str(caller))), switched=True)
    nobody = pwd.getpwnam("nobody")
    return Account(nobody.pw_uid, nobody.pw_gid, switched=True)
