"""Runs that go on from another one: where its messages are cut, and what comes behind the cut."""

from typing import Any

import msgspec

from domain.commands import ForkTurn, RegenerateTurn
from domain.ids import CommandKey, TurnId
from domain.parts import Part, TextPart
from services.gateway.beginning import begin
from services.gateway.dialects.agentos.answers import Refused
from services.gateway.dialects.agentos.finding import Finder, Found, TurnFacts
from services.gateway.dialects.agentos.forms import Form, HttpRequest
from services.gateway.dialects.agentos.messages import messages_of
from services.gateway.dialects.agentos.reader import RunReader
from services.gateway.dialects.agentos.run import Run
from services.gateway.dialects.agentos.starting import open_queue
from services.gateway.routes.turns import trace_of


class Branch(msgspec.Struct, frozen=True):
    """What a continue request says about the cut. `place`: end, last_user or the number of messages to keep."""

    place: str
    fork: bool
    regenerate: bool
    replace_original: bool | None
    instructions: str | None
    input: str | None

    @property
    def wanted(self) -> bool:
        """Whether anything but going on with the run itself was asked for."""
        return self.fork or self.regenerate or self.place != "end" or self.input is not None


def branch_of(form: Form) -> Branch:
    """Raises Refused for what does not go together."""
    place = form.text("continue_from") or "end"
    fork, regenerate = form.flag("fork", False), form.flag("regenerate", False)
    replace = None if form.text("replace_original") is None else form.flag("replace_original", True)
    instructions, said = form.text("additional_instructions"), form.text("input")
    number = place.removeprefix("-").isascii() and place.removeprefix("-").isdigit() and len(place) < 10
    if place not in ("end", "last_user") and not number:
        raise Refused(400, "Invalid continue_from. Use 'end', 'last_user', or a numeric message index.")
    if instructions is not None and said is not None:
        raise Refused(400, "Provide either `additional_instructions` or `input`, not both.")
    if replace is not None and not regenerate:
        raise Refused(400, "`replace_original` only makes sense with `regenerate=True`.")
    if regenerate and number:
        raise Refused(400, "`regenerate=True` derives the continuation boundary automatically.")
    if regenerate and fork:
        raise Refused(
            400,
            "`regenerate=True` derives the destructive/preserving choice from `replace_original`; do not pass"
            " `fork=True` directly.",
        )
    return Branch(place, fork, regenerate, replace, instructions, said)


class _Queued(msgspec.Struct, frozen=True):
    turn_id: str
    sequence: int
    queue_state: str = "open"


async def branched(
    finder: Finder, request: HttpRequest, found: Found, run: Run, branch: Branch, key: str
) -> tuple[RunReader, list[dict[str, Any]]]:
    """A new run that goes on from this one, and its events so far; this one stays as it is."""
    registration = found.registration
    common: dict[str, Any] = {
        "session_id": registration.session_id,
        "key": CommandKey(key),
        "by": registration.user_id,
        "trace": trace_of(request),
        "turn_id": TurnId(finder.deps.ids.uuid7()),
        "source_turn_id": TurnId(run.turn_id),
        "context_version": registration.context_version,
    }
    command = _regenerate(run, branch, common) if branch.regenerate else _fork(run, branch, common)
    keyed = "idempotency-key" in request.headers
    begun = await begin(finder.deps, registration.owner, command, keyed=keyed)
    reply = msgspec.json.decode(begun.reply, type=_Queued)
    await finder.names.take(registration.owner, reply.turn_id, registration.session_id)
    await open_queue(finder, registration.session_id, registration.user_id, reply.queue_state)
    turn = TurnFacts(
        turn_id=reply.turn_id, status="queued", first_sequence=reply.sequence, last_sequence=reply.sequence
    )
    reader = finder.reader(found.component, registration, turn)
    return reader, await reader.load()


def _regenerate(run: Run, branch: Branch, common: dict[str, Any]) -> RegenerateTurn:
    """The model is asked again: after the last batch of tools where there was one, else after the user's message."""
    last = run.places[-1] if run.places else None
    kept = 1 if last is None or branch.place == "last_user" else last.messages
    return RegenerateTurn(
        **common,
        replace_original=branch.replace_original is not False,
        additional_instructions=branch.instructions or branch.input,
        sequence=None if last is None or branch.place == "last_user" else last.sequence,
        metadata=_ancestry(run, kept, regenerated=True),
    )


def _fork(run: Run, branch: Branch, common: dict[str, Any]) -> ForkTurn:
    messages = len(messages_of(run))
    said: list[Part] = [] if branch.input is None else [TextPart(text=branch.input)]
    if branch.place == "end":
        return ForkTurn(**common, place="end", input=said, metadata=_ancestry(run, messages))
    again: list[Part] | None = [*run.input, *said] if said else None
    if branch.place == "last_user":
        return ForkTurn(**common, place="last_user", input=again, metadata=_ancestry(run, 1))
    kept = int(branch.place)
    if not 0 <= kept <= messages:
        raise Refused(400, f"message_index must be between 0 and {messages}")
    if kept == messages:
        return ForkTurn(**common, place="end", input=said, metadata=_ancestry(run, messages))
    below = [place for place in run.places if place.messages <= kept]
    if below:
        place = str(below[-1].sequence)
        return ForkTurn(**common, place=place, input=said, metadata=_ancestry(run, below[-1].messages))
    if kept == 0 and said:
        return ForkTurn(**common, place="last_user", input=said, metadata=_ancestry(run, 0))
    return ForkTurn(**common, place="last_user", input=again, metadata=_ancestry(run, 1))


def _ancestry(run: Run, kept: int, *, regenerated: bool = False) -> dict[str, Any]:
    """What the new run says of where it comes from. Settings of the first request go on."""
    said = {name: value for name, value in run.extra.items() if name != "regenerated"}
    said |= {"forked_from_run_id": run.run_id, "forked_from_message_index": kept}
    return {"agentos": {**said, "regenerated": True} if regenerated else said}
