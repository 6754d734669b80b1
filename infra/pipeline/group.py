"""One command group: one transaction of READ COMMITTED.

Locks, load, decide, append, projections, heads, commit; nothing is published here. Nothing waits between the statements
but for the database, so that the transaction stays short: a long writer stalls the feed.
"""

from collections.abc import Awaitable, Callable, Iterable
from collections.abc import Sequence as Many
from typing import Any, cast

import msgspec

from domain.clock import IdSource
from domain.commands import CreateSession
from domain.errors import TurnlogError
from domain.ids import Generation, SessionId, TurnId
from domain.ports import Outcome, SessionChange, SessionProjection, Transaction
from domain.session import Claim
from infra.pipeline.batch import Birth, Loaded, SessionBatch
from infra.pipeline.erase import erase, erased
from infra.pipeline.hooks import keep_jobs
from infra.pipeline.load import load
from infra.pipeline.member import Member, owners_of
from infra.pipeline.settings import PipelineSettings
from infra.pipeline.versions import Generations, Versions, read_generations, served_by
from infra.postgres.rows import ClaimRow, OpenTurnRow, ReplyRow, event_row, head_row, hexadecimal
from infra.postgres.sql import statements

_SQL = statements("pipeline")
_encode = msgspec.json.Encoder().encode

Locking = Callable[[Any, list[SessionId], dict[SessionId, list[str]]], Awaitable[set[SessionId]]]
"""Takes the locks of sessions as a transaction's first statement, and those of the owners that commands of theirs count
with; returns the sessions of which it got everything."""

NOBODY: dict[SessionId, list[str]] = {}


def lock_key(name: str) -> int:
    """Advisory lock of a session: the low half of its UUIDv7, which is random; of an owner likewise. Two that share one
    merely wait for each other."""
    return int(name[19:23] + name[24:], 16) - (1 << 63)


async def try_locks(
    connection: Any, session_ids: list[SessionId], owners: dict[SessionId, list[str]] = NOBODY
) -> set[SessionId]:
    """Those locks that are free now: a group never waits, since a chain of waiting groups makes strangers wait."""
    # An owner's lock makes what is counted of their turns the truth until the commit, whichever process counts.
    names = [*session_ids, *sorted({owner for each in owners.values() for owner in each})]
    rows = await connection.fetch(_SQL["try_lock"], [lock_key(name) for name in names])
    got = {name for name, row in zip(names, rows, strict=True) if row["locked"]}
    return {session_id for session_id in session_ids if got.issuperset((session_id, *owners.get(session_id, ())))}


async def wait_for_lock(
    connection: Any, session_ids: list[SessionId], owners: dict[SessionId, list[str]] = NOBODY
) -> set[SessionId]:
    """Wait for the lock of one session, up to the connection's lock_timeout (asyncpg.LockNotAvailableError)."""
    (session_id,) = session_ids
    # The session's first: whoever waits for that holds no owner's, and whoever has an owner's waits for nothing but
    # the database.
    for name in (session_id, *owners.get(session_id, ())):
        await connection.execute(_SQL["wait_for_lock"], lock_key(name))
    return {session_id}


class GroupResult(msgspec.Struct):
    """After the commit: every member is in `answers` or, where its session was locked by another, in `blocked`."""

    answers: list[tuple[Member, Outcome | Exception]]
    blocked: list[Member]
    batches: list[SessionBatch]


class GroupTransaction:
    """Runs groups; holds no connection and no state of sessions between them."""

    def __init__(self, versions: Versions, ids: IdSource, settings: PipelineSettings) -> None:
        self._versions = versions
        self._ids = ids
        self._settings = settings
        self._generations = Generations()

    async def run(self, connection: Any, members: Many[Member], locking: Locking) -> GroupResult:
        """All of it, or an error of the database and nothing that this caller may count on (the commit's reply may have
        been lost): the keys settle it."""
        by_session: dict[SessionId, list[Member]] = {}
        for member in members:
            by_session.setdefault(member.command.session_id, []).append(member)
        async with connection.transaction():
            owners = {session_id: named for session_id, group in by_session.items() if (named := owners_of(group))}
            locked = await locking(connection, list(by_session), owners)
            blocked = [member for member in members if member.command.session_id not in locked]
            # Whose caller has gone while the lock was waited for is not run any more.
            alive = {
                session_id: [member for member in group if not member.over]
                for session_id, group in by_session.items()
                if session_id in locked
            }
            mine = {session_id: group for session_id, group in alive.items() if group}
            answers: list[tuple[Member, Outcome | Exception]] = []
            batches: list[SessionBatch] = []
            if mine:
                loaded = await load(connection, mine, self._settings.limits.active_turns)
                await self._learn_generations(connection, mine, loaded)
                for session_id, group in mine.items():
                    answers += self._decide(loaded[session_id], group, batches)
                await self._write(connection, batches)
        return GroupResult(answers, blocked, batches)

    def _decide(
        self, loaded: Loaded, group: list[Member], batches: list[SessionBatch]
    ) -> list[tuple[Member, Outcome | Exception]]:
        birth = self._generations.birth()
        try:
            self._versions.check(self._generations, _places(loaded, birth))
        except TurnlogError as mismatch:
            return [(member, mismatch) for member in group]
        batch = SessionBatch(
            loaded,
            ids=self._ids,
            limits=self._settings.limits,
            payload_bytes=self._settings.payload_bytes,
            birth=birth,
        )
        answers = batch.run(group)
        batches.append(batch)
        return list(zip(group, answers, strict=True))

    async def _learn_generations(
        self, connection: Any, mine: dict[SessionId, list[Member]], loaded: dict[SessionId, Loaded]
    ) -> None:
        """Read the table again when a session may be born (in the newest generation), or has one not heard of yet."""
        known = self._generations.versions
        unknown = any(place not in known for entry in loaded.values() for place in _places(entry, Birth()))
        born = any(
            loaded[session_id].state.head is None and any(isinstance(m.command, CreateSession) for m in group)
            for session_id, group in mine.items()
        )
        if unknown or born:
            self._generations = await read_generations(connection)

    async def _write(self, connection: Any, batches: list[SessionBatch]) -> None:
        changed = [batch for batch in batches if batch.events]
        keys, replies = _kept(batches)
        if not changed:
            if keys:
                await connection.execute(_SQL["save_replies"], _encode(keys), replies)
            return
        events = [event for batch in changed for event in batch.events]
        opened, ended = _claims(changed)
        await connection.execute(
            _SQL["write"],
            _encode([head_row(batch.state.head, batch.at) for batch in changed if batch.state.head is not None]),
            _encode(keys),
            replies,
            _encode(opened),
            ended,
            _encode([event_row(event) for event in events]),
            [event.payload for event in events],
            [event.private for event in events],
            _encode([OpenTurnRow(b.session_id, t, owner) for b in changed for t, owner in b.begun().items()]),
            *_columns([(batch.session_id, turn_id) for batch in changed for turn_id in batch.ended()]),
        )
        for projection, changes in self._changes(changed):
            await projection.apply(changes, cast(Transaction, connection))
        await keep_jobs(connection, changed, self._settings.hook_again_seconds)
        for batch in changed:
            if erased(batch):
                await erase(connection, batch)

    def _changes(self, batches: Iterable[SessionBatch]) -> list[tuple[SessionProjection, list[SessionChange]]]:
        grouped: dict[tuple[str, int], tuple[SessionProjection, list[SessionChange]]] = {}
        for batch in batches:
            head = batch.state.head
            if head is None:
                continue
            for name, generation in served_by(head).items():
                projection = self._versions.writing(self._generations, name, generation)
                _, changes = grouped.setdefault((projection.name, projection.version), (projection, []))
                changes.append(batch.change(generation))
        return list(grouped.values())


def _places(loaded: Loaded, birth: Birth) -> list[tuple[str, Generation]]:
    if loaded.state.head is None:
        return [("turns", birth.turns), ("messages", birth.messages)]
    return list(served_by(loaded.state.head).items())


def _kept(batches: list[SessionBatch]) -> tuple[list[ReplyRow], list[bytes | None]]:
    """Rows for `command_log`, the replies apart."""
    rows: list[ReplyRow] = []
    replies: list[bytes | None] = []
    for batch in batches:
        for key, kept in batch.fresh_replies.items():
            rows.append(ReplyRow(batch.session_id, key, hexadecimal(kept.fingerprint), kept.fence, kept.ordinal))
            replies.append(kept.reply)
    return rows, replies


def _claims(batches: list[SessionBatch]) -> tuple[list[ClaimRow], list[SessionId]]:
    """Claims to write down, and sessions whose claim has ended."""
    opened: list[ClaimRow] = []
    ended: list[SessionId] = []
    for batch in batches:
        claim = batch.claim_change()
        if isinstance(claim, Claim):
            opened.append(ClaimRow(batch.session_id, claim.turn_id, claim.fence, claim.worker_id))
        elif claim is None:
            ended.append(batch.session_id)
    return opened, ended


def _columns(pairs: list[tuple[SessionId, TurnId]]) -> tuple[list[SessionId], list[TurnId]]:
    return [session_id for session_id, _ in pairs], [turn_id for _, turn_id in pairs]
