"""What reads a database for an audit, meets what judges it: ranges of sessions in, reports out, by several processes."""

from collections.abc import AsyncIterator

from infra.postgres.audit_reader import AuditReader, SessionIds
from projections.audit import ReplyRow, SessionAudit, SessionReport, Stored


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
