"""The erase of a session, in the transaction that appends its `session.erased`."""

import re
from typing import Any

from domain.erasing import skeleton
from domain.events import registry
from domain.events.session import SessionErased
from domain.ids import Generation, Micros
from domain.session import SessionState, evolve
from domain.turn_row import new_rows
from infra.pipeline.batch import SessionBatch
from infra.postgres.sql import statements

_SQL = statements("erase")
_ROWS = 2000
_SHA256 = re.compile(rb'"blob":"([0-9a-f]{64})"')


async def erase(connection: Any, batch: SessionBatch) -> None:
    """Everything up to the sequence that the batch's `session.erased` names: payloads become skeletons, salts and
    private parts go, turns are as those skeletons fold, messages, kept replies and attachments of nobody else go. After
    the batch was written, all under the session's lock; a session of very many events takes seconds."""
    upto = max(event.data.up_to_sequence for event in batch.applied if isinstance(event.data, SessionErased))
    state = SessionState(session_id=batch.session_id, turns={})
    sequences: list[int] = []
    skeletons: list[bytes] = []
    files: set[bytes] = set()
    while len(sequences) < upto:
        after = sequences[-1] if sequences else 0
        rows = await connection.fetch(_SQL["events"], batch.session_id, after, upto, _ROWS)
        if not rows:
            break
        for row in rows:
            files.update(bytes.fromhex(name.decode()) for name in _SHA256.findall(row["payload"]))
            bare = skeleton(row["type"], row["payload"])
            event = registry.decode(row["type"], row["schema_version"], bare)
            evolve(state, event, row["turn_id"], row["sequence"], Micros(row["created_at"]))
            sequences.append(row["sequence"])
            skeletons.append(bare)
    turns = new_rows([(batch.session_id, Generation(0), turn) for turn in state.turns.values()])
    # What this very batch answered names no content, and its commands may be repeated.
    kept = [key for key in batch.fresh_replies if key.startswith("key:")]
    await connection.execute(_SQL["erase"], batch.session_id, upto, sequences, skeletons, turns, list(files), kept)


def erased(batch: SessionBatch) -> bool:
    """Whether this batch erases its session."""
    return any(isinstance(event.data, SessionErased) for event in batch.applied)
