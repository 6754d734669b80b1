"""A worker's recorder, driven by hand: frames go out by the real notifier, drafts into the real log."""

from domain import frames
from infra.nats.notifier import NatsNotifier
from infra.system import SystemIds
from services.worker.executor.bounds import Bounds
from services.worker.executor.recorder import Recorder
from tests.support.delivery import Writer

STEP = 0.03
"""Seconds that pass with each piece: longer than deltas are grouped for."""


class Speaker:
    """Says one text, piece by piece, in a turn that is running. `now` is its own clock."""

    def __init__(self, writer: Writer, notifier: NatsNotifier) -> None:
        self.item_id = SystemIds().uuid7()
        self.pieces: list[str] = []
        self.now = 0.0
        self._writer = writer
        self._notifier = notifier
        claim = writer.claim
        self.recorder = Recorder(
            session_id=writer.session,
            turn_id=claim.turn_id,
            attempt=claim.attempt,
            frame_base=claim.frame_base,
            publish=lambda item, frame: notifier.publish_live(writer.session, item, frame),
            roll_up=lambda item, frame: notifier.publish_snapshot(writer.session, item, frame),
            clear=lambda item: notifier.clear_live(writer.session, item),
            new_id=SystemIds().uuid7,
            bounds=Bounds(),
        )
        self.recorder.take(frames.ItemStarted(item_id=self.item_id, kind="text"), self.now)

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    async def say(self, piece: str) -> None:
        """One delta, at the broker when this returns."""
        self.now += STEP
        self.recorder.tick(self.now)
        self.recorder.take(frames.ItemDelta(item_id=self.item_id, text=piece), self.now)
        self.pieces.append(piece)
        await self._notifier.outbox.emptied()

    async def end(self, *, partial: bool = False) -> None:
        """The item is committed."""
        self.recorder.end(self.now, partial=partial)
        drafts = self.recorder.drain()
        self._writer.skip_to(self.recorder.next_frame())
        await self._writer.record(*(draft.data for draft in drafts))
        self.recorder.committed(drafts)
