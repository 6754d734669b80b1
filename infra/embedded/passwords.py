"""Generated passwords of one embedded server, kept in a file of mode 0600.

Letters and digits only: they stand in URLs, in nats-server's configuration and in environment variables unescaped. The
first is always a letter, because nats-server reads a value that starts with a digit as a number.
"""

import json
import os
import secrets
import string
from pathlib import Path


class Passwords:
    """By name; one that is asked for and not there yet is generated and kept."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def of(self, name: str) -> str:
        known = self._read()
        if name not in known:
            letters = string.ascii_letters
            known[name] = secrets.choice(letters) + "".join(secrets.choice(letters + string.digits) for _ in range(31))
            self._write(known)
        return known[name]

    def _read(self) -> dict[str, str]:
        try:
            found: dict[str, str] = json.loads(self._path.read_bytes())
        except FileNotFoundError:
            return {}
        return found

    def _write(self, known: dict[str, str]) -> None:
        # Whole or not at all: a half-written file would lock everybody out of an existing database.
        fresh = self._path.with_suffix(".new")
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(fd, "w") as file:
            json.dump(known, file)
            file.flush()
            os.fsync(file.fileno())
        fresh.rename(self._path)
