"""Names of databases and roles: two installations with different namespaces share one server and never meet."""

from typing import Literal

DatabaseKind = Literal["agent", "gateway"]
Role = Literal["owner", "agent", "worker", "projector", "gateway"]

DEFAULT_NAMESPACE = "turnlog"

SERVICE_ROLES: dict[DatabaseKind, tuple[Role, ...]] = {
    "agent": ("agent", "worker", "projector"),
    "gateway": ("gateway",),
}
"""Who may connect to which database."""


def _prefix(namespace: str) -> str:
    return "turnlog" if namespace == DEFAULT_NAMESPACE else f"{namespace}_turnlog"


def database_name(kind: DatabaseKind, namespace: str = DEFAULT_NAMESPACE) -> str:
    """`turnlog` and `turnlog_gateway`, prefixed by any other namespace."""
    return _prefix(namespace) if kind == "agent" else f"{_prefix(namespace)}_gateway"


def role_name(role: Role, namespace: str = DEFAULT_NAMESPACE) -> str:
    """`turnlog_agent` and so on, prefixed by any other namespace."""
    return f"{_prefix(namespace)}_{role}"
