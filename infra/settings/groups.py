"""The groups of settings. Every duration is in seconds (a float), every size in bytes (or "512KiB").

A group's name is one word, so that TURNLOG_<GROUP>_<FIELD> can be taken apart.
"""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ByteSize, ConfigDict, Field, SecretStr, model_validator
from pydantic_settings import NoDecode

KIB = 1024
MIB = 1024 * KIB


def _words(value: object) -> object:
    """Lists in variables are separated by commas."""
    return [word.strip() for word in value.split(",") if word.strip()] if isinstance(value, str) else value


Words = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_words)]
Seconds = Annotated[float, Field(ge=0)]
PositiveSeconds = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]
Port = Annotated[int, Field(ge=0, le=65535)]


class Group(BaseModel):
    """Immutable; a name it does not know is refused, because it is a typing error more often than not."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)


class Limits(Group):
    """Bounds of what is accepted, stored and sent (design, section 9)."""

    input_bytes: ByteSize = Field(default=ByteSize(256 * KIB), description="one turn's input")
    event_bytes: ByteSize = Field(default=ByteSize(512 * KIB), description="public payload of one event")
    tool_result_bytes: ByteSize = Field(default=ByteSize(64 * KIB), description="what is stored of one tool result")
    queue_depth: Count = Field(default=100, description="turns that wait in one session; one more is answered with 429")
    active_turns: Count = Field(
        default=1000,
        description="turns of one user that have not ended, in all sessions; one more is answered with 429",
    )
    replay_page_bytes: ByteSize = Field(
        default=ByteSize(512 * KIB), description="one page of a replay (at least one event)"
    )
    attachment_bytes: ByteSize = Field(default=ByteSize(20 * MIB), description="one attachment")
    attachments: Count = Field(default=20, description="attachments of one input")
    attachments_bytes: ByteSize = Field(default=ByteSize(60 * MIB), description="all attachments of one input")
    archive_entries: Count = Field(default=200, description="files in an attached archive")
    archive_unpacked_bytes: ByteSize = Field(default=ByteSize(100 * MIB), description="an attached archive, unpacked")
    archive_ratio: Count = Field(default=100, description="unpacked size by packed size of an attached archive")


class Turn(Group):
    """Leases, recovery and ends of turns."""

    lease_seconds: PositiveSeconds = Field(
        default=15.0, description="a worker that is silent for longer has lost its claims"
    )
    heartbeat_seconds: PositiveSeconds = Field(default=5.0, description="how often a worker renews its lease")
    attempts: Count = Field(
        default=3, description="deaths of workers without a new checkpoint before a turn fails as poison"
    )
    timeout_seconds: PositiveSeconds = Field(default=3600.0, description="a turn that runs longer fails")
    silence_seconds: PositiveSeconds = Field(
        default=600.0, description="so does one without a frame for so long outside a tool"
    )
    requirement_seconds: Seconds = Field(
        default=0.0, description="a paused turn's questions expire after this (0: never)"
    )

    @model_validator(mode="after")
    def _renewed_in_time(self) -> "Turn":
        if self.heartbeat_seconds * 2 > self.lease_seconds:
            raise ValueError("heartbeat_seconds must be at most half of lease_seconds: one lost heartbeat is normal")
        return self


class Postgres(Group):
    """Connections to the databases, and the embedded server. A process needs the URL of its own role only."""

    agent: SecretStr | None = Field(default=None, description="agent database, for the agent role")
    worker: SecretStr | None = Field(default=None, description="agent database, for workers")
    projector: SecretStr | None = Field(default=None, description="agent database, for projectors")
    gateway: SecretStr | None = Field(default=None, description="the gateways' own database")
    admin: SecretStr | None = Field(
        default=None, description="a role that may create databases and roles, for `migrate`"
    )
    pool_size: Count = Field(default=8, description="connections of one process for commands and queries")
    waiting_pool_size: Count = Field(default=4, description="further ones that wait for sessions locked by others")
    lanes: Count = Field(default=4, description="command groups a process commits at the same time")
    group_commands: Count = Field(default=128, description="commands in one transaction at most")
    connect_seconds: PositiveSeconds = Field(default=5.0, description="for opening a connection")
    lock_timeout_seconds: PositiveSeconds = Field(
        default=2.0, description="for a lock on a session, then the command fails"
    )
    statement_timeout_seconds: PositiveSeconds = Field(default=30.0, description="for one statement")
    idle_in_transaction_seconds: PositiveSeconds = Field(
        default=10.0, description="then the server ends the connection"
    )
    version: Literal["18", "16"] = Field(default="18", description="of the embedded server")
    bin: Path | None = Field(default=None, description="another installation's bin directory for the embedded server")


class Nats(Group):
    """The broker. A process needs the password of its own role only."""

    urls: Words = Field(default=("nats://127.0.0.1:4222",), description="servers, separated by commas")
    gateway_password: SecretStr | None = Field(default=None, description="of the user <namespace>-gateway")
    agent_password: SecretStr | None = Field(default=None, description="of the user <namespace>-agent")
    worker_password: SecretStr | None = Field(default=None, description="of the user <namespace>-worker")
    projector_password: SecretStr | None = Field(default=None, description="of the user <namespace>-projector")
    operator_password: SecretStr | None = Field(default=None, description="of the user <namespace>-operator")
    replicas: Count = Field(default=1, description="of each stream (3 in a cluster)")
    server: Path | None = Field(default=None, description="another nats-server program for the embedded server")


class Gateway(Group):
    """Public HTTP and delivery."""

    host: str = Field(default="127.0.0.1", description="address to listen on")
    port: Port = Field(default=8080, description="port to listen on (0: a free one)")
    origins: Words = Field(default=(), description="origins, besides its own, whose pages may call it")
    viewers: Count = Field(default=20_000, description="open streams of one process; one more is told to come back")
    viewer_buffer_bytes: ByteSize = Field(default=ByteSize(1 * MIB), description="what may wait for one slow viewer")
    tails_bytes: ByteSize = Field(
        default=ByteSize(64 * MIB),
        description="newest events kept in memory for streams that come back, of all sessions",
    )
    comment_seconds: PositiveSeconds = Field(default=10.0, description="no stream is silent for longer")
    heads_seconds: PositiveSeconds = Field(
        default=5.0, description="how often open streams are compared with the store"
    )
    hold_seconds: Seconds = Field(default=0.02, description="how long a jump is held before a replay")
    recheck_seconds: Seconds = Field(
        default=0.25, description="one more comparison after an attach and after a turn's end"
    )
    attach_seconds: PositiveSeconds = Field(
        default=5.0, description="how long a new stream waits for the agent service"
    )
    user_timeout_seconds: PositiveSeconds = Field(
        default=30.0, description="TCP_USER_TIMEOUT: a peer that is gone is noticed"
    )
    stream_seconds: PositiveSeconds = Field(
        default=1_800.0, description="how long a stream lasts, and up to a fifth longer; its client comes back"
    )
    drain_seconds: Seconds = Field(
        default=0.0, description="over which streams are closed at the end (25 in production)"
    )
    ticket_seconds: PositiveSeconds = Field(default=30.0, description="how long a stream ticket can be used")
    token_seconds: PositiveSeconds = Field(default=86_400.0, description="how long a session token is valid")
    revocation_seconds: PositiveSeconds = Field(
        default=5.0, description="how often changed registrations are looked at"
    )
    starting_seconds: PositiveSeconds = Field(
        default=60.0, description="a registration that is `starting` longer is settled"
    )
    starts_per_minute: Count = Field(default=600, description="turns one user may submit a minute")


class AgentOS(Group):
    """The routes of Agno's AgentOS, over the same sessions and turns (docs/agentos.md)."""

    prefix: str = Field(
        default="/agentos",
        description="where the gateway serves them (/: at the root; off: not at all)",
        pattern=r"^(off|/|(/[A-Za-z0-9._~-]+)+)$",
    )
    name: str = Field(default="Turnlog", description="what /info and /config call this installation", max_length=255)


class Agent(Group):
    """The agent service's internal HTTP."""

    urls: Words = Field(default=("http://127.0.0.1:8090",), description="where gateways find it, separated by commas")
    host: str = Field(default="127.0.0.1", description="address to listen on")
    port: Port = Field(default=8090, description="port to listen on (0: a free one)")
    secret: SecretStr | None = Field(default=None, description="shared by gateways and agents")
    request_seconds: PositiveSeconds = Field(
        default=5.0, description="for one call; then another one is tried, same key"
    )
    unavailable_seconds: PositiveSeconds = Field(
        default=10.0, description="for all tries; then the gateway answers 503"
    )


class Worker(Group):
    """Execution."""

    agents: Words = Field(default=(), description="module:name or id=module:name, separated by commas")
    model: str | None = Field(default=None, description="of the built-in agent, for example openai:gpt-5")
    pool: str = Field(
        default="default", description="workers of one pool share its wake hints", pattern=r"^[a-z0-9_-]+$"
    )
    slots: Count = Field(default=16, description="turns one process runs at the same time")
    poll_seconds: PositiveSeconds = Field(default=1.0, description="how often it looks for work without a hint")
    delta_seconds: PositiveSeconds = Field(default=0.025, description="for how long deltas are grouped at most")
    snapshot_seconds: PositiveSeconds = Field(default=0.3, description="between stored snapshots of a tool result")
    slowest_snapshot_seconds: PositiveSeconds = Field(default=5.0, description="the same, of a large tool result")
    rollup_seconds: PositiveSeconds = Field(default=0.25, description="between roll-ups of an open item")
    drain_seconds: Seconds = Field(default=10.0, description="for running turns at the end; then they are handed back")
    hook_slots: Count = Field(default=8, description="background hooks one process runs at the same time")
    hook_attempts: Count = Field(default=5, description="tries of a background hook, then it has failed")
    hook_seconds: PositiveSeconds = Field(default=300.0, description="for one try")
    hook_retry_seconds: PositiveSeconds = Field(default=1.0, description="before a second try; doubled for each more")
    hook_poll_seconds: PositiveSeconds = Field(default=5.0, description="how often it looks for lost hook jobs")
    metrics_port: Port = Field(default=0, description="for /metrics of a worker (0: none)")
    metrics_host: str = Field(default="127.0.0.1", description="address for /metrics")


class Projector(Group):
    """Feed projections and the relay."""

    projections: Words = Field(default=(), description="one's own feed projections, module:Name, separated by commas")
    batch_events: Count = Field(default=500, description="events in one transaction")
    lease_seconds: PositiveSeconds = Field(
        default=10.0, description="a projector that is silent for longer has lost its projections"
    )
    metrics_port: Port = Field(default=0, description="for /metrics of a projector (0: none)")
    metrics_host: str = Field(default="127.0.0.1", description="address for /metrics")
    poll_seconds: PositiveSeconds = Field(default=0.5, description="how often the feed is looked at without a hint")
    relay_seconds: PositiveSeconds = Field(
        default=5.0, description="what EVENTS lacks so long after its commit is sent again"
    )


class Jwt(Group):
    """Users' tokens."""

    secret: SecretStr | None = Field(default=None, description="key of HS256, at least 32 bytes")
    jwks_file: Path | None = Field(
        default=None, description="public keys of RS256 and ES256; read again when it changes"
    )
    issuer: str | None = Field(default=None, description="required `iss`")
    audience: str | None = Field(default=None, description="required `aud`")
    leeway_seconds: Seconds = Field(default=5.0, description="for clocks that differ")

    @model_validator(mode="after")
    def _long_enough(self) -> "Jwt":
        if self.secret is not None and len(self.secret.get_secret_value().encode()) < 32:
            raise ValueError("secret must have at least 32 bytes")
        return self


class Trace(Group):
    """OpenTelemetry spans (extra `otel`)."""

    export: Literal["off", "otlp", "file"] = Field(
        default="off", description="spans to a collector (OTEL_EXPORTER_OTLP_ENDPOINT says where), or into a file"
    )
    file: Path | None = Field(default=None, description="one JSON object a line, of all processes that name it")

    def path(self) -> Path:
        """The file for spans."""
        assert self.file is not None
        return self.file

    @model_validator(mode="after")
    def _somewhere(self) -> "Trace":
        if self.export == "file" and self.file is None:
            raise ValueError("export = file needs file")
        return self


class Log(Group):
    """What processes write to standard error."""

    level: Literal["debug", "info", "warning", "error"] = Field(default="info", description="the least that is written")
    format: Literal["json", "console"] = Field(default="json", description="json for machines, console for people")
