"""What is told to others after a commit: events, hints that something may start, signals to a turn's owner."""

from collections.abc import Sequence as Many

from domain.events.envelope import envelope_of
from domain.events.turn import InterruptRequested, TurnAnswered
from domain.ports import Notifier, Publication
from infra.pipeline.batch import SessionBatch

INTERRUPT = b'{"type":"interrupt"}'
ANSWER = b'{"type":"answer"}'


def announce(notifier: Notifier, batches: Many[SessionBatch], pool: str) -> None:
    """Everything is a hint that may be lost or doubled: readers converge by sequence, workers poll, owners ask."""
    publications: list[Publication] = []
    wake = False
    for batch in batches:
        if not batch.events:
            continue
        publications += [Publication(e.session_id, e.sequence, envelope_of(e), e.metadata) for e in batch.events]
        wake = wake or batch.startable()
    if publications:
        notifier.publish_events(publications)
    for batch in batches:
        for event in batch.applied:
            if event.turn_id is None:
                continue
            if isinstance(event.data, InterruptRequested):
                notifier.signal(event.turn_id, INTERRUPT)
            elif isinstance(event.data, TurnAnswered):
                notifier.signal(event.turn_id, ANSWER)
    if wake:
        notifier.wake(pool)
