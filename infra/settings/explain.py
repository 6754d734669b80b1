"""Where each setting came from, for `turnlog config`. Secrets are masked here, once for all who print them."""

import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, SecretStr

from infra.settings.model import CONFIG_VARIABLE, PREFIX, Settings, config_file, variable_of

MASK = "********"


@dataclass(frozen=True, slots=True)
class Explained:
    """One setting: its dotted name, its value as text, where that came from, its variable and what it means."""

    name: str
    value: str
    source: str
    variable: str
    description: str


def explain(settings: Settings, overrides: Mapping[str, Any] | None = None) -> list[Explained]:
    """Every setting with its source: `command line`, a variable's name, the file's name, or `default`."""
    path = config_file()
    in_file = tomllib.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    present = {name.upper() for name in os.environ}
    found = []
    for name, value, description in _leaves(settings):
        variable = variable_of(name)
        group = variable_of(name.partition(".")[0])
        if _has(overrides or {}, name):
            source = "command line"
        elif variable in present:
            source = variable
        elif group != variable and group in present:
            source = group
        elif _has(in_file, name):
            source = str(path)
        else:
            source = "default"
        found.append(Explained(name, _text(value), source, variable, description))
    return found


def unknown_variables(settings: type[Settings] = Settings) -> list[str]:
    """TURNLOG_* variables that no setting has, most likely typing errors. Those of a group's are refused by `load`."""
    groups = tuple(f"{variable_of(name)}_" for name, field in settings.model_fields.items() if _is_group(field))
    known = {variable_of(name) for name in settings.model_fields} | {CONFIG_VARIABLE}
    ours = (name for name in os.environ if name.upper().startswith(PREFIX))
    return sorted(name for name in ours if name.upper() not in known and not name.upper().startswith(groups))


def _is_group(field: Any) -> bool:
    return isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)


def _leaves(model: BaseModel, prefix: str = "") -> Iterator[tuple[str, object, str]]:
    for name, field in type(model).model_fields.items():
        value = getattr(model, name)
        if isinstance(value, BaseModel):
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value, field.description or ""


def _has(tree: Mapping[str, Any], name: str) -> bool:
    here: Any = tree
    for part in name.split("."):
        if isinstance(here, BaseModel):
            here = here.model_dump(exclude_unset=True)
        if not isinstance(here, Mapping) or part not in here:
            return False
        here = here[part]
    return True


def _text(value: object) -> str:
    if isinstance(value, SecretStr):
        return MASK
    if value is None:
        return ""
    return ",".join(str(word) for word in value) if isinstance(value, tuple) else str(value)
