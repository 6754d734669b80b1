"""Times and sizes of an execution, from the settings."""

import msgspec


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds and bytes. The defaults are those of docs/architecture.md."""

    delta_seconds: float = 0.025
    """Deltas of one item, and progress of one tool, are shown at most this often."""

    rollup_seconds: float = 0.25
    """While an item grows, everything of it so far is shown at most this often, for those who join."""

    snapshot_seconds: float = 0.3
    """Snapshots of one tool result are stored at most this often …"""

    slowest_snapshot_seconds: float = 5.0
    """… and large ones at intervals that double up to this, since each repeats all of the text."""

    large_result_bytes: int = 8 * 1024
    result_bytes: int = 64 * 1024
    """What is stored of a tool result, and what the model, the viewers and the history get."""

    item_bytes: int = 256 * 1024
    """Encoded JSON of one stored item's text and cuts; what is longer goes on in an item of its own."""

    message_characters: int = 1024 * 1024
    """Text of one message; what is longer goes on in a message of its own, since a message is read and written as a
    whole with each of its items."""

    step_bytes: int = 16 * 1024
    event_bytes: int = 480 * 1024
    """Public payload of any event, below the store's 512 KiB, so that what is drafted is never refused."""

    pending_bytes: int = 1024 * 1024
    """Drafts that may wait for a commit; a runtime that is faster waits."""

    interrupt_seconds: float = 5.0
    """What a runtime gets for stopping by itself; then it is cancelled."""

    requirement_seconds: float = 0.0
    """When a paused turn's questions expire, unless the agent said so itself; 0: never."""
