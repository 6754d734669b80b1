"""Cancellation among calls of nats-py."""

import asyncio


def heed_cancellation() -> None:
    """nats-py swallows a cancellation that comes while it waits for its flusher, and so does asyncio.wait_for (before
    Python 3.12), on which it builds, when it comes together with the result. Who goes on after such a call asks here,
    or would never end. Raises CancelledError."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
