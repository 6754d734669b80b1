"""`turnlog audit --anchor`: what was signed is still there; what is there now is signed."""

from pathlib import Path

from domain.clock import Clock, rfc3339
from infra.anchors import AnchorForged, SignedHead, check_anchor, load_key, signed_heads, write_anchor
from infra.postgres.audit_reader import AuditReader
from projections.audit import Anchored, Finding

_HEADS_AT_ONCE = 1000


class Anchor:
    """The file of signed heads and the key. `good`: the file is there and is what was signed."""

    def __init__(self, path: Path, key: Path) -> None:
        self.path = path
        self.good = False
        self._key = key

    def forged(self) -> list[Finding]:
        """A finding where the file itself is not what was signed. Raises AnchorUnusable."""
        try:
            check_anchor(self.path, load_key(self._key))
        except AnchorForged as forged:
            return [Finding("", 0, "anchor", forged.detail)]
        return []

    def heads(self) -> dict[str, Anchored]:
        """All heads in the file, by session."""
        return {head.session_id: Anchored(head.sequence, bytes.fromhex(head.hash)) for head in signed_heads(self.path)}

    async def check(self, reader: AuditReader, only: str | None) -> list[Finding]:
        """Findings of all sessions in the file, or of one."""
        findings: list[Finding] = []
        some: list[SignedHead] = []
        for head in signed_heads(self.path):
            if only is None or head.session_id == only:
                some.append(head)
            if len(some) >= _HEADS_AT_ONCE:
                findings += await _compare(reader, some)
                some = []
        return findings + (await _compare(reader, some) if some else [])

    async def sign(self, reader: AuditReader, clock: Clock) -> int:
        """Sign the present heads in place of the old ones; the number of sessions, -1 where the key is a public one."""
        key = load_key(self._key, create=True)
        return await write_anchor(self.path, rfc3339(clock.now()), reader.heads(), key) if key.is_private else -1


async def _compare(reader: AuditReader, heads: list[SignedHead]) -> list[Finding]:
    findings = []
    found = await reader.hashes_at([(head.session_id, head.sequence) for head in heads])
    for head, hash_ in zip(heads, found, strict=True):
        if hash_ is None:
            detail = "a head was signed here and the log does not reach it: its tail was cut off"
            findings.append(Finding(head.session_id, head.sequence, "anchor", detail))
        elif hash_.hex() != head.hash:
            detail = "another hash was signed: the chain was rewritten"
            findings.append(Finding(head.session_id, head.sequence, "anchor", detail))
    return findings
