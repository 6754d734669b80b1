"""Cursors of lists: opaque to clients, checked as anything that clients send."""

import base64
import binascii
from typing import Any, TypeVar

import msgspec

from services.gateway.refusals import BadListCursor

T = TypeVar("T")


class Page(msgspec.Struct, frozen=True):
    """What the agent service answers for a list across sessions; `next`: the place of the last item, if more follow."""

    items: msgspec.Raw
    next: list[Any] | None


def page_of(answer: bytes) -> bytes:
    """The same as clients get it."""
    page = msgspec.json.decode(answer, type=Page)
    following = None if page.next is None else encoded(msgspec.json.encode(page.next))
    return msgspec.json.encode({"items": page.items, "next_cursor": following})


def encoded(place: bytes) -> str:
    """A cursor that means this place."""
    return base64.urlsafe_b64encode(place).decode()


def decoded(cursor: str) -> bytes:
    """Raises BadListCursor."""
    try:
        return base64.b64decode(cursor, altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadListCursor() from error


def place_of(cursor: str, decoder: msgspec.json.Decoder[T]) -> T:
    """The place that `page_of` gave. What its parts may be is the caller's to check. Raises BadListCursor."""
    try:
        return decoder.decode(decoded(cursor))
    except (ValueError, msgspec.DecodeError) as error:
        raise BadListCursor() from error
