"""What the processes of one installation must know: which variables each role gets, and which it must not see."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from infra.settings import Role

ROLES: tuple[Role, ...] = ("gateway", "agent", "worker", "projector")

_CREDENTIALS = frozenset(
    {
        "TURNLOG_POSTGRES_ADMIN",
        "TURNLOG_NATS_OPERATOR_PASSWORD",
        "TURNLOG_AGENT_SECRET",
        "TURNLOG_JWT_SECRET",
        *(f"TURNLOG_POSTGRES_{role.upper()}" for role in ROLES),
        *(f"TURNLOG_NATS_{role.upper()}_PASSWORD" for role in ROLES),
    }
)


@dataclass(frozen=True, slots=True)
class Site:
    """Where everything is. A role's environment holds its own credentials and nobody else's."""

    namespace: str
    dsns: Mapping[Role, str]
    nats_urls: tuple[str, ...]
    nats_passwords: Mapping[Role, str]
    service_secret: str
    agent_urls: tuple[str, ...]
    further: Mapping[str, str] = field(default_factory=dict)

    def environment(self, role: Role) -> dict[str, str]:
        """Our own environment without credentials, then the role's settings."""
        env = {name: value for name, value in os.environ.items() if name not in _CREDENTIALS}
        env["TURNLOG_NAMESPACE"] = self.namespace
        env[f"TURNLOG_POSTGRES_{role.upper()}"] = self.dsns[role]
        env["TURNLOG_NATS_URLS"] = ",".join(self.nats_urls)
        env[f"TURNLOG_NATS_{role.upper()}_PASSWORD"] = self.nats_passwords[role]
        if role in ("gateway", "agent"):
            env["TURNLOG_AGENT_SECRET"] = self.service_secret
        if role == "gateway":
            env["TURNLOG_AGENT_URLS"] = ",".join(self.agent_urls)
            if "TURNLOG_JWT_SECRET" in os.environ:
                env["TURNLOG_JWT_SECRET"] = os.environ["TURNLOG_JWT_SECRET"]
        env.update(self.further)
        return env
