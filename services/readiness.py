"""What `/readyz` says: each part that a process needs, asked at the same time."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

Check = Callable[[], Awaitable[None]]
"""Raises when the part it stands for does not work."""

_CHECK_SECONDS = 3.0


async def failing(checks: Mapping[str, Check]) -> dict[str, str]:
    """Part -> kind of error, of those that do not work or do not answer in time."""
    faults = await asyncio.gather(*(_fault(check) for check in checks.values()))
    return {name: fault for name, fault in zip(checks, faults, strict=True) if fault is not None}


async def _fault(check: Check) -> str | None:
    try:
        async with asyncio.timeout(_CHECK_SECONDS):
            await check()
    except Exception as error:  # noqa: BLE001 - whatever it is, the part does not work
        return type(error).__name__
    return None
