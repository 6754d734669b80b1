"""The settings as one immutable value, and how they are loaded."""

import os
import tomllib
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, SecretStr, ValidationError
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    TomlConfigSettingsSource,
)

from domain.errors import TurnlogError
from infra.settings.groups import (
    Agent,
    AgentOS,
    Gateway,
    Jwt,
    Limits,
    Log,
    Nats,
    Postgres,
    Projector,
    Trace,
    Turn,
    Worker,
)

Role = Literal["gateway", "agent", "worker", "projector"]

PREFIX = "TURNLOG_"
CONFIG_VARIABLE = "TURNLOG_CONFIG"


class BadSettings(TurnlogError):
    """A setting has a value that cannot be used, or a name that does not exist; one line each."""

    code = "bad_settings"
    sentence = "{problems}"


class SettingMissing(TurnlogError):
    """A process needs a setting that has no default."""

    code = "setting_missing"
    sentence = "{variable} is not set: {purpose}."


class Settings(BaseSettings):
    """Immutable. Groups are sections of turnlog.toml; durations are in seconds, sizes in bytes."""

    # One split only: TURNLOG_LIMITS_QUEUE_DEPTH is limits / queue_depth.
    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_nested_delimiter="_",
        env_nested_max_split=1,
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
        validate_default=True,
    )

    namespace: str = Field(
        default="turnlog",
        pattern=r"^[a-z][a-z0-9_-]{0,30}$",
        description="first token of subjects, and in the names of streams, databases and roles",
    )
    data: Path = Field(default=Path(".turnlog"), description="directory of the embedded servers")
    auth: Literal["jwt", "off"] = Field(default="jwt", description="off: one person on loopback, everything is theirs")

    limits: Limits = Limits()
    turn: Turn = Turn()
    postgres: Postgres = Postgres()
    nats: Nats = Nats()
    gateway: Gateway = Gateway()
    agentos: AgentOS = AgentOS()
    agent: Agent = Agent()
    worker: Worker = Worker()
    projector: Projector = Projector()
    jwt: Jwt = Jwt()
    trace: Trace = Trace()
    log: Log = Log()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls, toml_file=config_file())

    def dsn(self, role: Role | Literal["admin"]) -> str:
        """The role's database URL; raises SettingMissing."""
        return self._secret("postgres", role, "the URL of its database")

    def nats_credentials(self, role: Role | Literal["operator"]) -> tuple[str, str]:
        """User and password on the broker; raises SettingMissing."""
        return f"{self.namespace}-{role}", self._secret("nats", f"{role}_password", "its password on the broker")

    def service_secret(self) -> str:
        """What gateways and agents share; raises SettingMissing."""
        return self._secret("agent", "secret", "the secret that gateways and agents share")

    def _secret(self, group: str, field: str, purpose: str) -> str:
        value: SecretStr | None = getattr(getattr(self, group), field)
        # An empty one is a variable that somebody forgot to fill in, and as a secret everybody would know it.
        if value is None or not value.get_secret_value():
            raise SettingMissing(variable=variable_of(f"{group}.{field}"), purpose=purpose)
        return value.get_secret_value()


def config_file() -> Path:
    """The file that is read if it exists."""
    return Path(os.environ.get(CONFIG_VARIABLE, "turnlog.toml"))


def variable_of(name: str) -> str:
    """`limits.queue_depth` → TURNLOG_LIMITS_QUEUE_DEPTH."""
    return PREFIX + name.replace(".", "_").upper()


def load(**overrides: Any) -> Settings:
    """The settings of this process; `overrides` (what the command line said) win over everything.

    Raises BadSettings, whose text names each wrong setting without its value.
    """
    path = config_file()
    if CONFIG_VARIABLE in os.environ and not path.is_file():
        raise BadSettings(problems=f"{CONFIG_VARIABLE} names {path}, which is no file")
    try:
        return Settings(**overrides)
    except tomllib.TOMLDecodeError as error:
        raise BadSettings(problems=f"{path} is not valid TOML: {error}") from None
    except (ValidationError, SettingsError) as error:
        raise BadSettings(problems=_problems(error)) from None


def _problems(error: ValidationError | SettingsError) -> str:
    if isinstance(error, SettingsError):
        return str(error)
    lines = []
    for problem in error.errors(include_input=False, include_url=False):
        name = ".".join(str(part) for part in problem["loc"])
        lines.append(f"{name} ({variable_of(name)}): {problem['msg']}")
    return "; ".join(lines)
