"""The audit of a database: ranges of sessions, each read in one snapshot and judged, one after the other or by several
processes."""

import asyncio
import multiprocessing
import re
from collections.abc import AsyncIterator, Callable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait

import msgspec

from infra.postgres.audit_reader import AuditReader, SessionIds, open_audit_reader
from projections.audit import Finding, ReplyRow, SessionAudit, SessionReport, Stored
from services.cli.long_work import run_long

EVENTS_A_RANGE = 50_000
_SHA256 = re.compile(r"[0-9a-f]{64}")
_WAITING_RANGES = 4
"""Per process: enough that none is idle, few enough that an interrupt need not wait for many."""


class Totals(msgspec.Struct):
    """What an audit came to. `not_judged`: sessions with an event that cannot be trusted or is too new, and the last
    sequence before it."""

    sessions: int = 0
    events: int = 0
    erased_sessions: int = 0
    skipped: dict[str, int] = {}
    not_judged: dict[str, int] = {}
    findings: list[Finding] = []

    def add(self, report: SessionReport) -> None:
        self.sessions += 1
        self.events += report.events
        self.erased_sessions += report.erased_to > 0
        for name, count in report.skipped.items():
            self.skipped[name] = self.skipped.get(name, 0) + count
        if report.judged_to < report.events:
            self.not_judged[report.session_id] = report.judged_to
        self.findings += report.findings

    def merge(self, other: "Totals") -> None:
        self.sessions += other.sessions
        self.events += other.events
        self.erased_sessions += other.erased_sessions
        for name, count in other.skipped.items():
            self.skipped[name] = self.skipped.get(name, 0) + count
        self.not_judged |= other.not_judged
        self.findings += other.findings


async def audit_range(reader: AuditReader, ids: SessionIds) -> AsyncIterator[SessionReport]:
    """A report for each session in the range, in the order of their ids."""
    audit: SessionAudit | None = None
    async for page in reader.pages(ids):
        if audit is None:
            audit = SessionAudit(page.session_id, complete=True)
        rows = Stored(
            [row[1:] for row in page.turns],
            [row[1:] for row in page.messages],
            [ReplyRow(*row) for row in page.replies],
        )
        if page.last:
            yield audit.end(page.head, rows)
            audit = None
        else:
            audit.feed(page.events, rows)


async def audit_database(dsn: str, ids: SessionIds | None, parallel: int, progress: Callable[[Totals], None]) -> Totals:
    """Audit one range, or everything by `parallel` processes. `progress` is told what has been done so far. Raises
    StoreUnavailable."""
    totals = Totals()
    if ids is not None:
        totals.merge(await _audit(dsn, ids))
        progress(totals)
        return totals
    async with open_audit_reader(dsn) as reader:
        ranges = await reader.ranges(EVENTS_A_RANGE)
    if parallel == 1 or len(ranges) == 1:
        for some in ranges:
            totals.merge(await _audit(dsn, some))
            progress(totals)
    else:
        await asyncio.to_thread(_audit_in_parallel, dsn, ranges, parallel, totals, progress)
    return totals


async def _audit(dsn: str, ids: SessionIds) -> Totals:
    totals = Totals()
    named: dict[tuple[str, str], int] = {}
    async with open_audit_reader(dsn) as reader:
        async for report in audit_range(reader, ids):
            totals.add(report)
            session_id = report.session_id
            named |= {(session_id, blob): at for blob, at in report.blobs.items() if at > report.erased_to}
        totals.findings += await _attachments(reader, named)
    return totals


async def _attachments(reader: AuditReader, named: dict[tuple[str, str], int]) -> list[Finding]:
    """Attachments that are not stored, or that the erase of another session would take away; what is no SHA-256 is
    none's name. `named`: by session and name, the sequence of an input that names it."""
    found = [place for place in named if not _SHA256.fullmatch(place[1])]
    possible = [place for place in named if _SHA256.fullmatch(place[1])]
    loose = await reader.loose_blobs(possible) if possible else []
    lacks = "an attachment that this input names is not stored"
    unheld = "an attachment that this input names is not noted as named: it may be taken away"
    return [Finding(place[0], named[place], "blobs", lacks) for place in found] + [
        Finding(place[0], named[place], "blobs", unheld if stored else lacks) for place, stored in loose
    ]


def _audit_in_child(dsn: str, ids: SessionIds) -> Totals:
    return run_long(_audit(dsn, ids))


def _audit_in_parallel(
    dsn: str, ranges: list[SessionIds], parallel: int, totals: Totals, progress: Callable[[Totals], None]
) -> None:
    # Not forked: this process has threads and an event loop.
    context = multiprocessing.get_context("spawn")
    left = iter(ranges)
    with ProcessPoolExecutor(parallel, mp_context=context) as pool:
        running: set[Future[Totals]] = set()
        try:
            while True:
                while len(running) < parallel * _WAITING_RANGES and (ids := next(left, None)) is not None:
                    running.add(pool.submit(_audit_in_child, dsn, ids))
                if not running:
                    return
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for finished in done:
                    totals.merge(finished.result())
                progress(totals)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
