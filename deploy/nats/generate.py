"""Writes deploy/nats/turnlog.conf: what the embedded server gets, for three nodes with passwords from the environment.

.venv/bin/python deploy/nats/generate.py > deploy/nats/turnlog.conf
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from infra.embedded.nats_config import Cluster, configuration

NODES = ("nats-1", "nats-2", "nats-3")


def variable(user: str) -> str:
    """`turnlog-agent` → $NATS_AGENT_PASSWORD."""
    return f"${'NATS_' + user.removeprefix('turnlog-').upper() + '_PASSWORD'}"


def text() -> str:
    return configuration(
        name="$NATS_NAME",
        host="0.0.0.0",
        port=4222,
        store='"/data"',
        namespaces=("turnlog",),
        password_of=variable,
        cluster=Cluster("turnlog", 6222, tuple(f"nats://{node}:6222" for node in NODES), host="0.0.0.0"),
    )


if __name__ == "__main__":
    sys.stdout.write(text())
