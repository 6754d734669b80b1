"""`turnlog chat` and `turnlog tail`: their options."""

import asyncio
from typing import Annotated

from cyclopts import Parameter, validators

from services.cli.api import DEFAULT_URL, Refused
from services.cli.chat import run_chat
from services.cli.failures import FOUND_WRONG, say
from services.cli.tail import run_tail

Url = Annotated[str, Parameter(env_var="TURNLOG_URL", help="The gateway.")]
Token = Annotated[
    str | None, Parameter(env_var="TURNLOG_TOKEN", help="A user's or a session's token, where auth is on.")
]


def chat(session: str | None = None, *, agent: str | None = None, url: Url = DEFAULT_URL, token: Token = None) -> int:
    """Type, and watch the answer stream. Ctrl-C interrupts the turn, Ctrl-D leaves; /resume opens a paused queue.

    Parameters
    ----------
    session
        A session to go on with, by its id or external id; a new one otherwise.
    agent
        Agent of a new session; the first one otherwise.
    """
    try:
        return asyncio.run(run_chat(url, token, session, agent))
    except Refused as error:
        say(str(error))
        return FOUND_WRONG


def tail(
    session: str,
    *,
    after: Annotated[int, Parameter(validator=validators.Number(gte=0))] = 0,
    json: bool = False,
    live: bool = False,
    url: Url = DEFAULT_URL,
    token: Token = None,
) -> int:
    """Print the committed events of a session, one a line, as they come; it reconnects by itself and repeats nothing.

    Parameters
    ----------
    session
        The session's id or external id.
    after
        Begin after this sequence.
    json
        Print each event as its JSON, byte for byte as it was sent.
    live
        Print temporary frames too.
    """
    try:
        return asyncio.run(run_tail(url, token, session, after, json=json, live=live))
    except Refused as error:
        say(str(error))
        return FOUND_WRONG
