"""A session's ended turns, told once more for another session: other ids, the same story.

What is copied is what the log says of turns that are over, so the copy is a session like any other: its history can be
walked, it can be forked at each checkpoint, and it stays when its source is erased. Not copied is what would happen
again or belongs to the source alone: hooks, keys and names that callers chose, the state of the queue.
"""

import hashlib
from collections.abc import Sequence as Many
from typing import Any

import msgspec

from domain.events import hook, item, turn
from domain.events.base import Event, ExecutorEvent
from domain.events.envelope import Draft, StoredEvent
from domain.events.registry import UnknownEvent
from domain.ids import Sequence, SessionId, TurnId
from domain.parts import ForkSource, Scope

_LEFT_OUT = (hook.HookScheduled, hook.HookCompleted, hook.HookFailed)


class Copyist:
    """Give it the turns in the order in which they were accepted. The same source gives the same copy, however often it
    is told, so that a copy that was broken off can be gone on with."""

    def __init__(self, source: SessionId, target: SessionId, name: str, first: Sequence) -> None:
        """`name`: what its owner calls the source; `first`: the sequence that the copy begins with."""
        self._source = source
        self._target = target
        self._name = name
        self._next = int(first)
        self._turns: dict[str, TurnId] = {}
        self._runs: dict[str, TurnId] = {}
        self._places: dict[int, int] = {}
        """Of inputs and checkpoints, one can fork there: their sequences here and in the copy."""

        self._marks: dict[str, list[TurnId]] = {}
        """Copies that are marked as superseded, by the turn behind whose end the mark stands."""

    def copied(self, stored: Many[StoredEvent], upto: Sequence) -> list[Draft]:
        """The copy of one turn, from all of its events; nothing where it had not ended at `upto`, was erased, or has
        events that this release does not know."""
        told = [(one, one.event()) for one in stored if one.sequence <= upto]
        end = next((place for place, (_, event) in enumerate(told) if isinstance(event, turn.TERMINAL)), None)
        if end is None:
            return []
        life = [(one, event) for one, event in told[: end + 1] if not isinstance(event, _LEFT_OUT)]
        if any(one.salt is None or isinstance(event, UnknownEvent) for one, event in life):
            return []
        old = life[0][0].turn_id or TurnId("")
        new = self._turns[old] = copied_id(self._target, old)
        drafts: list[Draft] = []
        for one, event in life:
            if isinstance(event, turn.TurnQueued | item.CheckpointReached):
                self._places[one.sequence] = self._next + len(drafts)
            if isinstance(event, turn.TurnQueued):
                self._runs[event.external_id or old] = new
            drafts.append(Draft(self._told(event, old, new), new, self._private(one.private, old, new)))
        for _, event in told[end + 1 :]:
            if isinstance(event, turn.TurnSuperseded):
                self._marks.setdefault(event.by_turn_id, []).append(new)
        drafts += [Draft(turn.TurnSuperseded(by_turn_id=new), marked) for marked in self._marks.pop(old, [])]
        self._next += len(drafts)
        return drafts

    def _told(self, event: Event, old: TurnId, new: TurnId) -> Event:
        match event:
            case turn.TurnQueued():
                return self._queued(event, old)
            case turn.TurnStarted(parent_turn_id=str(parent)):
                return msgspec.structs.replace(event, parent_turn_id=self._turns.get(parent))
            case item.RuntimeEvent():
                event = msgspec.structs.replace(event, payload=_with(event.payload, {old: new}))
        if isinstance(event, ExecutorEvent) and event.scope is not None:
            return msgspec.structs.replace(event, scope=_scope(event.scope, {old: new}))
        return event

    def _queued(self, event: turn.TurnQueued, old: TurnId) -> Event:
        source, place = event.forked_from, None
        if source is not None and source.turn_id in self._turns:
            at = None if source.sequence is None else self._places.get(source.sequence)
            place = ForkSource(turn_id=self._turns[source.turn_id], sequence=at)
        metadata = dict(event.metadata or {})
        # Of a copy of a copy, the first source.
        metadata.setdefault("copied_from", {"session": self._name, "turn_id": old})
        told = metadata.get("agentos")
        if isinstance(told, dict) and told.get("forked_from_run_id") in self._runs:
            metadata["agentos"] = told | {"forked_from_run_id": self._runs[told["forked_from_run_id"]]}
        return msgspec.structs.replace(
            event,
            idempotency_key=None,
            external_id=None,
            forked_from=place,
            regenerates=None if event.regenerates is None else self._turns.get(event.regenerates),
            metadata=metadata,
        )

    def _private(self, private: bytes | None, old: TurnId, new: TurnId) -> bytes | None:
        """A runtime's own state names the turn and the session, where it does, by ids as long as the new ones."""
        if private is None:
            return None
        return private.replace(old.encode(), new.encode()).replace(self._source.encode(), self._target.encode())


def copied_id(target: SessionId, old: str) -> TurnId:
    """A UUIDv7 of the same moment, always the same one for that copy."""
    digits = hashlib.sha256(f"{target}\x00{old}".encode()).hexdigest()
    variant = "89ab"[int(digits[3], 16) % 4]
    return TurnId(f"{old[:13]}-7{digits[:3]}-{variant}{digits[4:7]}-{digits[7:19]}")


def _scope(scope: Scope, ids: dict[Any, TurnId]) -> Scope:
    return msgspec.structs.replace(
        scope,
        run_id=ids.get(scope.run_id, scope.run_id),
        parent_run_id=ids.get(scope.parent_run_id, scope.parent_run_id),
    )


def _with(value: Any, ids: dict[Any, TurnId]) -> Any:
    if isinstance(value, dict):
        return {key: _with(inner, ids) for key, inner in value.items()}
    if isinstance(value, list):
        return [_with(inner, ids) for inner in value]
    return ids.get(value, value) if isinstance(value, str) else value
