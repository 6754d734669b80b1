"""A notifier that remembers what it was told."""

from collections.abc import Sequence as Many

from domain.ids import SessionId, TurnId
from domain.ports import Publication


class MemoryNotifier:
    """Implements `domain.ports.Notifier`; the lists are in the order of the calls."""

    def __init__(self) -> None:
        self.events: list[Publication] = []
        self.cleared: list[tuple[SessionId, str]] = []
        self.live: list[tuple[SessionId, str, bytes]] = []
        self.wakes: list[str] = []
        self.signals: list[tuple[TurnId, bytes]] = []
        self.controls: list[tuple[SessionId, bytes]] = []

    def publish_events(self, publications: Many[Publication]) -> None:
        self.events += publications

    def publish_live(self, session_id: SessionId, item_id: str, frame: bytes) -> None:
        self.live.append((session_id, item_id, frame))

    def publish_snapshot(self, session_id: SessionId, item_id: str, frame: bytes) -> None:
        self.live.append((session_id, item_id, frame))

    def clear_live(self, session_id: SessionId, item_id: str) -> None:
        self.cleared.append((session_id, item_id))

    def wake(self, pool: str) -> None:
        self.wakes.append(pool)

    def signal(self, turn_id: TurnId, message: bytes) -> None:
        self.signals.append((turn_id, message))

    def control(self, session_id: SessionId, message: bytes) -> None:
        self.controls.append((session_id, message))
