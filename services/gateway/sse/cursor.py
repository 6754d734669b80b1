"""The client's place in the number line, as it comes in a request."""

from domain.errors import BadCursor

_MOST_DIGITS = 18


def cursor_of(last_event_id: str | None, after_sequence: str | None) -> int:
    """`Last-Event-ID` wins, since a browser sends it with the URL it was first given. Absent or empty: 0, from the
    beginning. Raises BadCursor on anything but a decimal sequence."""
    text = last_event_id or after_sequence
    if not text:
        return 0
    if not (text.isascii() and text.isdigit()) or len(text) > _MOST_DIGITS:
        raise BadCursor()
    return int(text)
