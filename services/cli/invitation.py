"""What `turnlog up` prints once it serves: the URL, and two lines to paste that submit a turn and watch it."""

import asyncio
import sys
from typing import Any

from services.cli.api import Api, Refused
from services.cli.child import Log
from services.cli.failures import CannotRun

_EXTERNAL_ID = "hello"
_PATIENCE_SECONDS = 60.0
_POLL_SECONDS = 0.25
_AUTH_ON = (401, 403)


async def invite(url: str, log: Log) -> None:
    """Wait until a gateway answers and an agent is announced, then print. Never fails: it only tells."""
    async with Api(url) as api:
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                agents = await _agents(api)
                session = None if agents is None else await _session(api, agents[0]["agent_id"])
        except TimeoutError:
            log("up", f"{url} does not answer yet, or no worker has announced an agent: see the lines above")
            return
        except Refused as error:
            log("up", f"{url} is up, but refused the first session: {error}")
            return
    sys.stdout.write(invitation(url, session))
    sys.stdout.flush()


def invitation(url: str, session: str | None) -> str:
    """The text. Without a session, auth is on and a token is needed first."""
    if session is None:
        return f"\nTurnlog is up: {url}   (auth is on: send `Authorization: Bearer` with a user's token)\n\n"
    return (
        f"\nTurnlog is up: {url}   (the page; Ctrl-C stops everything)\n\n"
        f"watch:   curl -N {url}/v1/sessions/{session}/events -H 'Accept: text/event-stream'\n"
        f"submit:  curl {url}/v1/sessions/{session}/turns"
        """ -H 'Content-Type: application/json' -d '{"input": "What is 12 * 34? And what time is it?"}'\n"""
        f"chat:    turnlog chat --url {url}\n\n"
    )


async def _agents(api: Api) -> list[dict[str, Any]] | None:
    while True:
        try:
            found: list[dict[str, Any]] = await api.call("GET", "/v1/agents")
            if found:
                return found
        except CannotRun:
            pass
        except Refused as error:
            if error.status in _AUTH_ON:
                return None
            if error.status != 503:
                raise
        await asyncio.sleep(_POLL_SECONDS)


async def _session(api: Api, agent_id: str) -> str:
    """A session named `hello` where that is possible: the same one on each start."""
    while True:
        try:
            await api.call("POST", "/v1/sessions", {"agent_id": agent_id, "external_id": _EXTERNAL_ID})
        except Refused as error:
            if error.status == 503:
                await asyncio.sleep(_POLL_SECONDS)
                continue
            if error.status not in (409, 410):
                raise
            made = await api.call("POST", "/v1/sessions", {"agent_id": agent_id})
            return str(made["session_id"])
        return _EXTERNAL_ID
