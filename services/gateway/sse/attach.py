"""How a connection becomes a viewer: the order of these steps is what makes a stream complete.

1. subscribe, and wait until the broker delivers;  2. ask the store for the head, so that nothing lies between the two;
3. `stream.open`;  4. replay pages until the viewer has what the feed has shown;  5. join in the same loop step.
Everything committed before 1 was done is in the replay, everything after it comes by the subscription, and what comes
by both is told apart by its sequence. In step 5 the viewer is shown the open items as the feed knows them, each in one
snapshot; from there on it gets every delta. What the feed does not know yet it finds out (`showing`) and
then shows to all who lack it."""

import asyncio
from asyncio import Future
from typing import NamedTuple

from domain.errors import AgentUnavailable, Unavailable
from services.gateway.sse import frames
from services.gateway.sse.ahead import Ahead
from services.gateway.sse.feed import SessionFeed
from services.gateway.sse.hub import Hub
from services.gateway.sse.inquiry import Stand
from services.gateway.sse.viewer import Viewer

_FIRST_PAUSE = 0.05


class Opening(NamedTuple):
    """Where a stream begins: its first bytes, and the cursor it goes on from."""

    first: bytes
    cursor: int


async def stand_of(hub: Hub, session_id: str, live: "Future[None]") -> Stand:
    """Where the session stands, as read once its subscription was live. Waits for an agent service that is away for
    `attach_seconds`. Raises SessionNotFound, Unavailable."""
    await asyncio.shield(live)
    pause = _FIRST_PAUSE
    try:
        async with asyncio.timeout(hub.limits.attach_seconds):
            while True:
                try:
                    return await hub.inquiry.stand(session_id)
                except Unavailable:
                    await asyncio.sleep(pause)
                    pause = min(pause * 2, 1.0)
    except TimeoutError:
        raise AgentUnavailable from None


def opening(hub: Hub, session_id: str, cursor: int, stand: Stand) -> Opening:
    """`stream.open`, and `stream.resync` behind it where the cursor is none of ours: a client that asks for what is
    not there yet would wait in silence and then miss it."""
    head = stand.head
    first = frames.opening(
        retry=frames.jittered(hub.limits.retry_milliseconds),
        session_id=session_id,
        epoch=stand.epoch,
        after=cursor,
        last_sequence=head.last_sequence,
        chat_status=head.chat_status,
        active_turn_id=head.active_turn_id,
    )
    if cursor > head.last_sequence:
        first += frames.resync("beyond_head", head.last_sequence)
        cursor = head.last_sequence
    return Opening(first, cursor)


async def follow(hub: Hub, feed: SessionFeed, viewer: Viewer) -> None:
    """Keeps the viewer supplied until its stream is over: replay while it is behind the feed, then what the feed
    gives it."""
    try:
        while not viewer.over:
            await viewer.write_backlog()
            if viewer.joined or viewer.over:
                await viewer.changed()
            elif feed.ended is not None:
                viewer.end(frames.closing(feed.ended))
            elif not feed.join(viewer):
                await _catch_up(hub, feed, viewer)
    finally:
        feed.leave(viewer)


async def _catch_up(hub: Hub, feed: SessionFeed, viewer: Viewer) -> None:
    """Pages until the viewer has what was shown. The next ones are on their way while one is written, so three at most
    are held."""
    ahead = Ahead(feed.pages)
    pause = _FIRST_PAUSE
    while not viewer.over and viewer.cursor < feed.shown:
        try:
            page = await ahead.page(viewer.cursor)
        except Unavailable:
            # The stream stays open, with comments; the client would find no other way to what it lacks either.
            ahead.forget()
            await asyncio.sleep(pause)
            pause = min(pause * 2, hub.limits.heal_retry_seconds)
            continue
        pause = _FIRST_PAUSE
        if page.last == viewer.cursor:
            await asyncio.sleep(hub.limits.hold_seconds)
            continue
        if viewer.peer.writable:
            ahead.look(page)
        await viewer.write_page(page.body, page.last)
