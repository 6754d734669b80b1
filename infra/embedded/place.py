"""The directory of one embedded server.

`root` is what the caller named; it holds what belongs to the caller: the lock, the passwords, the port, the log.
`home` belongs to the server's account: data, sockets, configuration. It is `root/server`, or, where that account cannot
reach it (a checkout under /root), a directory of the shelter that `root/server` then points to.
"""

import hashlib
import os
import secrets
import socket
import tempfile
from pathlib import Path

from infra.embedded.account import choose
from infra.embedded.binaries import SHELTER
from infra.embedded.errors import UnreachablePlace

# sun_path of a UNIX socket address holds 108 bytes with its final NUL; PostgreSQL adds "/.s.PGSQL.65535".
_SOCKET_DIRECTORY_BYTES = 107 - len("/.s.PGSQL.65535")


class Place:
    """Paths of one server, with the right owners and modes once `prepare` has run."""

    def __init__(self, root: Path, *, shelter: Path = SHELTER) -> None:
        self.root = root.absolute()
        self.account = choose(self.root / "server")
        self._shelter = shelter

    @property
    def home(self) -> Path:
        return (self.root / "server").resolve()

    @property
    def log(self) -> Path:
        return self.root / "server.log"

    @property
    def lock(self) -> Path:
        return self.root / "lock"

    @property
    def passwords(self) -> Path:
        return self.root / "passwords.json"

    def prepare(self) -> None:
        """Make the directories; raises UnreachablePlace where the server's account cannot be given one."""
        # Others may look through `root` only where the server's account is one of the others.
        self.root.mkdir(mode=0o755 if self.account.switched else 0o700, parents=True, exist_ok=True)
        server = self.root / "server"
        if not server.exists():
            # A dangling link: the shelter was cleared, so start anew as after `rm -r`.
            server.unlink(missing_ok=True)
            server.mkdir(mode=0o700)
            self.account.own(server)
            if not self.account.reaches(server):
                server.rmdir()
                server.symlink_to(self._sheltered())
        if not self.account.reaches(self.home):
            raise UnreachablePlace(
                place=self.home, uid=self.account.uid, remedy="choose a --data directory that it can reach"
            )

    def sockets(self) -> Path:
        """A private directory whose path is short enough for a UNIX socket; made if it is not there."""
        directory = self.home / "run"
        if len(os.fsencode(directory)) > _SOCKET_DIRECTORY_BYTES:
            digest = hashlib.sha256(os.fsencode(self.home)).hexdigest()[:16]
            directory = Path(tempfile.gettempdir()) / f"turnlog-{self.account.uid}-{digest}"
        if not directory.exists():
            directory.mkdir(mode=0o700)
            self.account.own(directory)
        found = directory.lstat()
        if found.st_uid != self.account.uid or found.st_mode & 0o077:
            # The name in a shared temporary directory can be guessed, so whoever made it must be who we think.
            raise UnreachablePlace(place=directory, uid=self.account.uid, remedy="remove it: it is not ours alone")
        return directory

    def port(self, wanted: int | None) -> int:
        """`wanted`, else the one of last time if it is still free, else a free one; remembered for next time."""
        path = self.root / "port"
        if wanted is None:
            known = int(path.read_text()) if path.exists() else 0
            wanted = known if known and _is_free(known) else free_port()
        path.write_text(f"{wanted}\n")
        return wanted

    def write(self, path: Path, text: str) -> None:
        """Write a file of the server's: mode 0600, owned by its account."""
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(fd, "w") as file:
            file.write(text)
        self.account.own(path)

    def _sheltered(self) -> Path:
        # A fresh name each time: whoever removes `root` to start anew must not meet the old data again.
        directory = self._shelter / "data" / f"{self.root.name}-{secrets.token_hex(6)}"
        try:
            directory.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            directory.mkdir(mode=0o700)
        except OSError as error:
            raise UnreachablePlace(
                place=self.root, uid=self.account.uid, remedy=f"choose another --data directory ({error})"
            ) from error
        self.account.own(directory)
        return directory


def free_port() -> int:
    """A loopback TCP port that nobody listens on now.

    Below the kernel's range for outgoing connections, because there a client that keeps knocking at a server that is
    down can be given the server's port as its own and end up connected to itself.
    """
    with reserve_port() as held:
        return int(held.getsockname()[1])


def reserve_port() -> socket.socket:
    """A port as `free_port` finds it, which nobody else is given as long as this socket is open, in any process. A
    server that sets SO_REUSEADDR, as all of ours do, may listen on it meanwhile."""
    while True:
        held = socket.socket()
        try:
            held.bind(("127.0.0.1", secrets.choice(range(15000, 32000))))
        except OSError:
            held.close()
        else:
            # Only now, because a bind with it would not notice another one's reservation.
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            return held


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
