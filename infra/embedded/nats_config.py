"""The configuration of a nats-server: JetStream, and a user with subject permissions for each role.

The embedded server and the one of compose.yaml get the same text; there the passwords come from the environment.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from infra.embedded.nats_permissions import ROLES, permissions, user_of

# A public payload is at most 512 KiB and a tool's text at most 64 KiB; the envelope and JSON escapes fit beside them.
MAX_PAYLOAD = "2MB"


@dataclass(frozen=True, slots=True)
class Cluster:
    """Membership of a NATS cluster: our route port and the route URLs of all members."""

    name: str
    port: int
    routes: tuple[str, ...]
    host: str = "127.0.0.1"


def configuration(
    *,
    name: str,
    host: str,
    port: int,
    store: str,
    namespaces: Sequence[str],
    password_of: Callable[[str], str],
    cluster: Cluster | None = None,
    max_memory: str = "256MB",
    max_file: str = "2GB",
) -> str:
    """The text of a configuration file. `name`, `store` and what `password_of` gives for a user stand in it as they
    are, so they come quoted, or as the name of a variable (`$NATS_NAME`).
    """
    lines = [
        "# Written by Turnlog.",
        f"server_name: {name}",
        f"host: {host}",
        f"port: {port}",
        f"max_payload: {MAX_PAYLOAD}",
    ]
    lines += ["jetstream {", f"  store_dir: {store}", f"  max_mem: {max_memory}", f"  max_file: {max_file}", "}"]
    if cluster is not None:
        lines += ["cluster {", f'  name: "{cluster.name}"', f"  host: {cluster.host}", f"  port: {cluster.port}"]
        lines += ["  routes: [", *(f'    "{route}"' for route in cluster.routes), "  ]", "}"]
    lines += ["authorization {", "  users: ["]
    for namespace in namespaces:
        for role in ROLES:
            lines += _user(namespace, role, password_of(user_of(namespace, role)))
    lines += ["  ]", "}"]
    return "\n".join(lines) + "\n"


def _user(namespace: str, role: str, password: str) -> list[str]:
    allowed = permissions(namespace, role)
    return [
        "    {",
        f'      user: "{user_of(namespace, role)}"',
        f"      password: {password}",
        "      permissions: {",
        *_allow("publish", allowed.publish),
        *_allow("subscribe", allowed.subscribe),
        "      }",
        "    }",
    ]


def _allow(what: str, subjects: Sequence[str]) -> list[str]:
    return [f"        {what}: {{ allow: [", *(f'          "{subject}"' for subject in subjects), "        ] }"]
