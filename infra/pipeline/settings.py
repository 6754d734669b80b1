"""Bounds and sizes of a process's command pipeline."""

import msgspec

from domain.decisions import Limits


class PipelineSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Times in seconds, sizes in bytes."""

    lanes: int = 4
    group_size: int = 128
    lane_queue: int = 4096
    """Commands that may wait in a lane; one more is refused as Unavailable at once."""

    lock_timeout: float = 2.0
    """How long a command waits for a session's lock; executor commands wait until their deadline."""

    waiters: int = 4
    """Sessions whose lock may be waited for in a blocking way at once, each on a connection of the small waiting
    pool."""

    waiting_sessions: int = 1024
    waiting_commands: int = 1024
    """Bounds of what may wait for locks: sessions of this process, and commands of one session."""

    command_seconds: float = 5.0
    """Deadline of a command that names none."""

    payload_bytes: int = 512 * 1024
    """Public payload of one event."""

    hook_again_seconds: float = 10.0
    """When a background hook is told to the work queue again, unless somebody has begun it."""

    wake_pool: str = "default"
    limits: Limits = Limits()
