"""Old payloads read as new ones. Each step lifts one type by one version; stored payloads are never rewritten."""

from collections.abc import Callable
from typing import Any

import msgspec

Upcaster = Callable[[dict[str, Any]], dict[str, Any]]

UPCASTERS: dict[tuple[str, int], Upcaster] = {}
"""(type, from_version) -> step to from_version + 1. Empty while every type is at version 1."""


def upcast(type_: str, version: int, to_version: int, payload: bytes) -> bytes:
    """The payload lifted step by step. Raises KeyError when a step is missing: a release must ship all of them."""
    data = msgspec.json.decode(payload)
    for step in range(version, to_version):
        data = UPCASTERS[type_, step](data)
    return msgspec.json.encode(data)
