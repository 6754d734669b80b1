"""Waiting for a condition, never for a time."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


async def eventually(
    condition: Callable[[], Awaitable[T | None]], what: str, *, timeout: float = 10.0, pause: float = 0.02
) -> T:
    """Ask again and again until the answer is true, and return it; else fail and say what was waited for."""
    last: T | None = None
    try:
        async with asyncio.timeout(timeout):
            while True:
                last = await condition()
                if last:
                    return last
                await asyncio.sleep(pause)
    except TimeoutError:
        raise AssertionError(f"not within {timeout} s: {what} (last seen: {last!r})") from None
