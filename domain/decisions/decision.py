"""What a decision is made of."""

import msgspec

from domain.events.base import Event
from domain.events.envelope import Draft
from domain.ids import Micros, Sequence, TurnId
from domain.replies import Reply
from domain.session import Claim, Head, SessionState, evolve


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds a decision enforces (settings)."""

    queue_depth: int = 100
    active_turns: int = 1000
    """Of one user, over all sessions: queued, running or paused."""

    input_bytes: int = 256 * 1024
    poison_deaths: int = 3
    """Deaths without a checkpoint in between after which a turn fails."""

    turn_seconds: float = 3600.0
    """How long one leg of a turn may run; waiting for people does not count."""

    silent_seconds: float = 600.0
    """How long a runtime may give no frame while no tool runs."""


class Decision(msgspec.Struct, kw_only=True):
    """Events to append and the reply to keep. `claim`: the claim that these events open; claims end by the events
    themselves."""

    events: list[Draft]
    reply: Reply
    claim: Claim | None = None


class Draftsman:
    """Collects events and evolves the state with each, so that a later rule of the same command sees what an earlier
    one decided.

    The state it works on is the caller's scratch copy: it is thrown away when the command is refused.
    """

    def __init__(self, state: SessionState, at: Micros) -> None:
        self.state = state
        self.at = at
        self.events: list[Draft] = []

    @property
    def head(self) -> Head:
        assert self.state.head is not None
        return self.state.head

    @property
    def next_sequence(self) -> Sequence:
        """The sequence that the next event will get."""
        return Sequence(self.head.last_sequence + 1) if self.state.head is not None else Sequence(1)

    def write(self, event: Event, turn_id: TurnId | None = None, private: bytes | None = None) -> Sequence:
        """Decide one event; returns its sequence."""
        sequence = self.next_sequence
        evolve(self.state, event, turn_id, sequence, self.at)
        self.events.append(Draft(event, turn_id, private))
        return sequence

    def adopt(self, drafts: list[Draft]) -> None:
        """Decide events that the executor drafted."""
        for draft in drafts:
            self.write(draft.data, draft.turn_id, draft.private)
