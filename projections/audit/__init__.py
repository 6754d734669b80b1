"""Replay-from-zero audit: what is stored of a session, against its rules (docs/audit.md). Rows in, findings out."""

from projections.audit.findings import RULES, Finding, SessionReport
from projections.audit.heads import HEAD_COLUMNS, Anchored, HeadRow
from projections.audit.models import MESSAGE_COLUMNS, TURN_COLUMNS, Row
from projections.audit.pages import Stored
from projections.audit.replies import ReplyRow
from projections.audit.session import SessionAudit

__all__ = [
    "HEAD_COLUMNS",
    "MESSAGE_COLUMNS",
    "RULES",
    "TURN_COLUMNS",
    "Anchored",
    "Finding",
    "HeadRow",
    "ReplyRow",
    "Row",
    "SessionAudit",
    "SessionReport",
    "Stored",
]
