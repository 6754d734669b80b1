"""The private state of Agno runs: what checkpoints keep, entry by entry, and what is read back from them."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from domain.runtime import RuntimeFailed
from services.worker.executor.values import plain
from services.worker.runtimes.agno.files import bare


class Answered(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A response of a model. `run` and `number` say which request of which run it answers, in every attempt alike;
    `items` are the items of its tool calls by call id."""

    run: str
    number: int
    message: dict[str, Any]
    extra: dict[str, Any] | None = None
    items: dict[str, str] = {}


class Step(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A step of a workflow that starts. `idempotent`: it may run again."""

    key: str
    idempotent: bool = False


class Stored(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The rows of an Agno store: the session without its runs, and this turn's runs. `items`: of calls that wait for
    people, by run id and call id."""

    session: dict[str, Any] = {}
    runs: list[dict[str, Any]] = []
    items: dict[str, dict[str, str]] = {}


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="agno", tag_field="runtime"):
    """What one checkpoint adds. `transcript`: new messages of the turn's own run, without history; `system`: its system
    message; `output`: the answer, with the end."""

    transcript: list[dict[str, Any]] = []
    system: dict[str, Any] | None = None
    answered: Answered | None = None
    step: Step | None = None
    stored: Stored | None = None
    ended: Literal["pause", "interrupted", "stopped", "end"] | None = None
    output: str | None = None


class Journal(msgspec.Struct, kw_only=True):
    """All entries of a turn, folded. `answered` and `steps` are those of the leg in hand; `paused` is what its last
    pause left, `stored` what anything did; `pauses` counts pauses, of which the log may lack the last; `ended`: nothing
    is left to do but to say `output`, or that it was stopped."""

    transcript: list[dict[str, Any]] = []
    system: dict[str, Any] | None = None
    answered: dict[str, dict[int, Answered]] = {}
    steps: list[Step] = []
    stored: Stored | None = None
    paused: Stored | None = None
    pauses: int = 0
    ended: Literal["stopped", "end"] | None = None
    output: str | None = None

    def add(self, entry: Entry) -> None:
        """Fold one more."""
        self.transcript += entry.transcript
        self.system = entry.system or self.system
        if entry.answered is not None:
            self.answered.setdefault(entry.answered.run, {})[entry.answered.number] = entry.answered
        if entry.step is not None:
            self.steps.append(entry.step)
        if entry.stored is not None:
            self.stored = entry.stored
        if entry.ended == "pause":
            # What follows is another leg, which starts from the rows.
            self.answered = {}
            self.steps = []
            self.paused = entry.stored
            self.pauses += 1
        self.ended = entry.ended if entry.ended in ("stopped", "end") else None
        self.output = entry.output


_entries = msgspec.json.Decoder(Entry)


def encode(entry: Entry) -> bytes:
    """Raises RuntimeFailed where something of it has no JSON form."""
    return msgspec.json.encode(plain(_bare(entry), "the state of the run"))


def _bare(entry: Entry) -> Entry:
    stored, answered = entry.stored, entry.answered
    if stored is not None:
        stored = msgspec.structs.replace(stored, session=bare(stored.session), runs=bare(stored.runs))
    if answered is not None:
        answered = msgspec.structs.replace(answered, message=bare(answered.message))
    return msgspec.structs.replace(entry, transcript=bare(entry.transcript), stored=stored, answered=answered)


def read(blobs: Sequence[bytes]) -> Journal:
    """Raises RuntimeFailed where another kind of agent wrote them."""
    journal = Journal()
    for blob in blobs:
        try:
            journal.add(_entries.decode(blob))
        except msgspec.ValidationError:
            # The error shows what it was given, which is private: it is not chained.
            raise RuntimeFailed(
                "agent_error",
                "The past of this session was written by another kind of agent: give the new one its own id.",
            ) from None
    return journal


def called(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    """Ids of the tool calls of the last response that no later message answers."""
    answered: set[str] = set()
    for message in reversed(messages):
        if message.get("role") == "assistant":
            return [c["id"] for c in message.get("tool_calls") or [] if c.get("id") and c["id"] not in answered]
        if message.get("tool_call_id"):
            answered.add(message["tool_call_id"])
    return []
