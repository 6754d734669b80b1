"""`turnlog chat`: type, watch it stream, answer what it asks, interrupt with Ctrl-C."""

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from uuid_utils.compat import uuid7

from services.cli.api import Api, Frame, Refused
from services.cli.failures import FINE, FOUND_WRONG, CannotRun, say
from services.cli.lines import Lines
from services.cli.questions import HELP, answer_of, open_ones, prompt_of
from services.cli.screen import TERMINAL, Screen

_PROMPT = "you> "
_LEFT = "left"

Typed = Callable[[str], Awaitable[str | None]]
"""Prompts and returns the next line; None at the end of the input."""


class Chat:
    """One person, one session. The stream is followed all the time; a line typed is a turn, whoever else writes too."""

    def __init__(self, api: Api, session: str, screen: Screen) -> None:
        self._api = api
        self._session = session
        self._screen = screen
        self._open: str | None = None
        self._ended: dict[str, str] = {}
        self._change = asyncio.Event()

    async def follow(self, after: int) -> None:
        """Draw the stream until the session is closed."""
        async for frame in self._api.follow(self._session, after):
            self._screen.show(frame)
            self._note(frame)

    def _note(self, frame: Frame) -> None:
        if frame.event in TERMINAL or frame.event == "turn.paused":
            self._ended[frame.data["turn_id"]] = frame.event
            self._change.set()

    async def say(self, text: str) -> str:
        """Submit a turn and wait for its end (or until it waits for a person); returns that event's type."""
        reply = await self._api.submit(self._session, text, str(uuid7()))
        turn: str = reply["turn_id"]
        self._screen.mine.add(turn)
        if reply["queue_state"] == "paused":
            say("the queue is paused after a failed or interrupted turn: /resume lets it go on")
        return await self.end_of(turn)

    async def end_of(self, turn: str) -> str:
        """Wait for the end of the turn, or until it waits for a person (again); returns that event's type."""
        self._open = turn
        while turn not in self._ended:
            self._change.clear()
            await self._change.wait()
        self._open = None
        return self._ended.pop(turn)

    async def questions(self) -> tuple[str, list[dict[str, Any]]]:
        """The turn that waits for people, and what it asks; nothing where none does."""
        status = await self._api.call("GET", f"/v1/sessions/{self._session}/status")
        turn = status["active_turn_id"]
        if turn is None:
            return "", []
        return turn, open_ones(await self._api.call("GET", f"/v1/sessions/{self._session}/turns/{turn}"))

    async def answer(self, turn: str, given: dict[str, Any]) -> None:
        """Answer one question. Somebody else's answer, or the end of the turn, may have come first."""
        path = f"/v1/sessions/{self._session}/turns/{turn}/continue"
        try:
            await self._api.call("POST", path, {"answers": [given]}, str(uuid7()))
        except Refused as error:
            say(str(error))

    async def cancel(self, turn: str) -> None:
        """Give the paused turn up."""
        try:
            await self._api.call("POST", f"/v1/sessions/{self._session}/turns/{turn}/cancel")
        except Refused as error:
            say(str(error))

    async def interrupt(self) -> None:
        """Stop the running turn; what it wrote so far stays."""
        if self._open is None:
            return
        try:
            await self._api.call("POST", f"/v1/sessions/{self._session}/turns/{self._open}/interrupt")
        except Refused as error:
            say(f"cannot interrupt: {error}")

    async def resume(self) -> None:
        """Open the queue again."""
        try:
            await self._api.call("POST", f"/v1/sessions/{self._session}/resume")
        except Refused as error:
            say(str(error))

    @property
    def busy(self) -> bool:
        return self._open is not None


async def run_chat(url: str, token: str | None, session: str | None, agent: str | None) -> int:
    """Chat until the input ends; 1 if a turn failed."""
    async with Api(url, token) as api:
        screen = Screen()
        after = 0
        if session is None:
            made = await _new_session(api, agent)
            session, after = made["session_id"], made["last_sequence"]
            say(f"session {session} with {made['agent_id']}; Ctrl-D leaves, Ctrl-C interrupts the turn")
        else:
            page = await api.call("GET", f"/v1/sessions/{session}/messages?limit=20")
            for message in page["items"]:
                screen.message(message["role"], "".join(p.get("text", "") for p in message["parts"]))
            after = page["as_of_sequence"]
        chat = Chat(api, session, screen)
        follower = asyncio.create_task(chat.follow(after))
        talk = asyncio.create_task(_talk(chat, screen))
        try:
            done, _ = await asyncio.wait({follower, talk}, return_when=asyncio.FIRST_COMPLETED)
            if talk not in done:
                follower.result()
                say("the session was closed")
                return FINE
            return talk.result()
        finally:
            follower.cancel()
            talk.cancel()
            await asyncio.gather(follower, talk, return_exceptions=True)


async def _new_session(api: Api, agent: str | None) -> dict[str, Any]:
    agents = [found["agent_id"] for found in await api.call("GET", "/v1/agents")]
    if not agents:
        raise CannotRun("no agent has been announced: is a worker running? (`turnlog status` shows)")
    chosen = agent or agents[0]
    if chosen not in agents:
        raise CannotRun(f"there is no agent {chosen}: choose from {', '.join(agents)}")
    made: dict[str, Any] = await api.call("POST", "/v1/sessions", {"agent_id": chosen})
    return made


async def _asked(chat: Chat, typed: Typed) -> str:
    """Put the questions of a paused turn until it has ended; returns its last event's type, or that the person left.
    Without an answer it goes on waiting: for another person, or for this one later."""
    event = ""
    while True:
        turn, needs = await chat.questions()
        if not needs:
            return event
        for need in needs:
            line = await typed(prompt_of(need))
            if line is None or line.strip() == "/quit":
                return _LEFT
            if line.strip() == "/cancel":
                await chat.cancel(turn)
                break
            given = answer_of(need, line)
            if given is None:
                say(f"please answer with {HELP[need['kind']]}; /cancel gives the turn up")
                break
            await chat.answer(turn, given)
        else:
            event = await chat.end_of(turn)
            continue
        if not (await chat.questions())[1]:
            return await chat.end_of(turn)


async def _talk(chat: Chat, screen: Screen) -> int:
    loop = asyncio.get_running_loop()
    tasks: set[asyncio.Task[None]] = set()
    leave = asyncio.Event()
    lines = Lines()

    def pressed() -> None:
        if not chat.busy:
            leave.set()
            return
        task = loop.create_task(chat.interrupt())
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    loop.add_signal_handler(signal.SIGINT, pressed)
    left = loop.create_task(leave.wait())
    found = FINE

    async def typed(prompt: str) -> str | None:
        if sys.stdin.isatty():
            screen.prompt(prompt)
        line = loop.create_task(lines.next())
        await asyncio.wait({line, left}, return_when=asyncio.FIRST_COMPLETED)
        text = line.result() if line.done() else None
        line.cancel()
        return text

    try:
        event = await _asked(chat, typed)
        while True:
            if event == "turn.failed":
                found = FOUND_WRONG
            text = None if event == _LEFT else await typed(_PROMPT)
            event = ""
            if text is None or text.strip() == "/quit":
                return found
            if text.strip() == "/resume":
                await chat.resume()
            elif text.strip():
                try:
                    event = await chat.say(text)
                    if event == "turn.paused":
                        event = await _asked(chat, typed)
                except Refused as error:
                    say(str(error))
                    found = FOUND_WRONG
    finally:
        left.cancel()
        loop.remove_signal_handler(signal.SIGINT)
