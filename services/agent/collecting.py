"""Removes attachments that nobody names: their turn was refused, or whoever handed them in is gone."""

import asyncio
import random

import structlog

from domain.errors import StoreUnavailable
from infra.postgres.blobs import PostgresBlobs

log = structlog.get_logger("turnlog.agent")

KEPT_SECONDS = 3600.0
"""How long what is handed in is kept for the turn that will name it."""

_PAUSE_SECONDS = 600.0


async def collect(blobs: PostgresBlobs) -> None:
    """Until cancelled. Every agent process does so; what one removes the others do not find."""
    while True:
        await asyncio.sleep(_PAUSE_SECONDS * random.uniform(0.5, 1.0))
        try:
            gone = await blobs.collect(KEPT_SECONDS)
        except StoreUnavailable:
            continue
        if gone:
            log.info("blobs_collected", count=gone)
