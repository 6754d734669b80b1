"""Lines of an export: one event each, with all that a stranger needs to check digests and chain (docs/audit.md)."""

from collections.abc import Iterable

import msgspec

from domain.clock import parse_rfc3339
from domain.events.envelope import StoredEvent, envelope_of
from domain.ids import EventId, Sequence, SessionId, TurnId, is_uuid
from projections.audit.findings import Finding, SessionReport
from projections.audit.heads import Anchored
from projections.audit.session import SessionAudit

PAGE_EVENTS = 500


class BadLine(ValueError):
    """The line is not one that `export_line` writes."""


class _Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    session_id: str
    sequence: int
    event_id: str
    type: str
    schema_version: int
    created_at: str
    data: msgspec.Raw
    metadata: msgspec.Raw
    salt: str | None
    payload_digest: str
    private_digest: str | None
    hash: str
    turn_id: str | None = None


_decode = msgspec.json.Decoder(_Line).decode


def export_line(event: StoredEvent) -> bytes:
    """The envelope, whose `data` is the exact text that was hashed, followed by `metadata` as exact text and salt,
    digests and hash in hex; ends with a newline and holds no other. Raises ValueError where the stored text does."""
    line = b'%s,"metadata":%s,"salt":%s,"payload_digest":"%s","private_digest":%s,"hash":"%s"}\n' % (
        envelope_of(event)[:-1],
        event.metadata,
        _hex(event.salt),
        event.payload_digest.hex().encode(),
        _hex(event.private_digest),
        event.hash.hex().encode(),
    )
    if line.count(b"\n") != 1:
        raise ValueError(f"event {event.sequence} of {event.session_id} holds a line break in its JSON")
    return line


def parse_line(line: bytes) -> StoredEvent:
    """The event in a line, without its private part. There is one way to write it, to the byte. Raises BadLine."""
    try:
        found = _decode(line)
        event = StoredEvent(
            session_id=SessionId(found.session_id),
            sequence=Sequence(found.sequence),
            event_id=EventId(found.event_id),
            type=found.type,
            schema_version=found.schema_version,
            turn_id=None if found.turn_id is None else TurnId(found.turn_id),
            created_at=parse_rfc3339(found.created_at),
            payload=bytes(found.data),
            private=None,
            salt=None if found.salt is None else bytes.fromhex(found.salt),
            payload_digest=bytes.fromhex(found.payload_digest),
            private_digest=None if found.private_digest is None else bytes.fromhex(found.private_digest),
            metadata=bytes(found.metadata),
            hash=bytes.fromhex(found.hash),
        )
        if export_line(event) != line:
            raise BadLine("it is not written as an export writes it")
        return event
    except (msgspec.DecodeError, ValueError, OverflowError) as error:
        raise BadLine(str(error)) from error


def audit_export(lines: Iterable[bytes], anchors: dict[str, Anchored] | None = None) -> SessionReport:
    """Audit one session's export, page by page. `anchors`: heads that were signed earlier, by session id; where they
    are given they must name this session, else whoever invents a session would not be found out."""
    audit: SessionAudit | None = None
    session_id = ""
    page: list[StoredEvent] = []
    bad: list[Finding] = []
    for number, line in enumerate(lines, 1):
        try:
            event = parse_line(line)
            if not is_uuid(event.session_id) or event.session_id != (session_id or event.session_id):
                raise BadLine(f"session {event.session_id}")
        except BadLine as error:
            bad.append(Finding(session_id, 0, "export", f"line {number}: {error}"))
            break
        if audit is None:
            session_id = event.session_id
            audit = SessionAudit(session_id, complete=False, anchored=(anchors or {}).get(session_id))
            if anchors is not None and session_id not in anchors:
                bad.append(Finding(session_id, 0, "anchor", "no head of this session was signed"))
        page.append(event)
        if len(page) >= PAGE_EVENTS:
            audit.feed(page)
            page = []
    if audit is None:
        bad = bad or [Finding("", 0, "export", "there is no event in it")]
        return SessionReport(session_id, findings=bad)
    audit.feed(page)
    report = audit.end()
    report.findings += bad
    return report


def _hex(value: bytes | None) -> bytes:
    return b"null" if value is None else b'"%s"' % value.hex().encode()
