"""`turnlog status`: what a gateway says about the installation, or about one session."""

import asyncio
import sys
from typing import Any

import msgspec

from services.cli.api import DEFAULT_URL, Api, Refused
from services.cli.failures import FINE, FOUND_WRONG, say
from services.cli.talking import Token, Url


def status(session: str | None = None, *, json: bool = False, url: Url = DEFAULT_URL, token: Token = None) -> int:
    """Show whether the gateway is ready and which agents are served; with a session, its queue and last sequence.

    Exit code 1 when something is not ready.

    Parameters
    ----------
    session
        The session's id or external id.
    json
        Print JSON.
    """
    return asyncio.run(_session(session, json, url, token) if session else _gateway(json, url, token))


async def _gateway(json: bool, url: str, token: str | None) -> int:
    async with Api(url, token) as api:
        found: dict[str, Any] = {"url": api.url}
        try:
            await api.call("GET", "/readyz")
            found["ready"] = True
        except Refused as error:
            found |= {"ready": False, "failing": error.problem}
        try:
            found["agents"] = await api.call("GET", "/v1/agents")
        except Refused as error:
            found |= {"agents": [], "problem": str(error)}
        try:
            found["projections"] = await api.call("GET", "/v1/projections")
        except Refused:
            found["projections"] = []
    if json:
        _print_json(found)
    else:
        sys.stdout.write(f"{found['url']}: {'ready' if found['ready'] else 'NOT ready'}\n")
        for name in ("failing", "problem"):
            if name in found:
                sys.stdout.write(f"  {name}: {found[name]}\n")
        for agent in found["agents"]:
            sys.stdout.write(f"  agent {agent['agent_id']} ({agent['component']})\n")
        for one in found["projections"]:
            lag = f"{one['lag_events']} events, {one['lag_seconds']:.1f} s behind"
            parked = f", {one['parked']} parked (see: turnlog projections parked)" if one["parked"] else ""
            idle = "" if one["running"] else ", run by nobody"
            sys.stdout.write(f"  projection {one['name']} {one['version']}: {lag}{parked}{idle}\n")
        if not found["agents"]:
            sys.stdout.write("  no agent has been announced\n")
    return FINE if found["ready"] and found["agents"] else FOUND_WRONG


async def _session(session: str, json: bool, url: str, token: str | None) -> int:
    async with Api(url, token) as api:
        try:
            found = await api.call("GET", f"/v1/sessions/{session}/status")
        except Refused as error:
            say(str(error))
            return FOUND_WRONG
    if json:
        _print_json(found)
    else:
        sys.stdout.writelines(f"{name}: {value}\n" for name, value in found.items())
    return FINE


def _print_json(value: object) -> None:
    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")
