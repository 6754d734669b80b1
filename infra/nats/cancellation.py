"""Cancellation among calls of nats-py."""

import asyncio


def heed_cancellation() -> None:
    """nats-py swallows a cancellation that comes while it waits for its flusher: whoever calls it again and again asks
    here, or would never end."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
