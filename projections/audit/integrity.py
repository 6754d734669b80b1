"""The line of numbers, the hash chain and the digests: what holds whatever the events mean."""

import msgspec

from domain.erasing import skeleton
from domain.events import registry
from domain.events.envelope import StoredEvent
from domain.events.session import SessionErased
from domain.hashing import chain, digest
from domain.session import GENESIS
from projections.audit.findings import Findings


class Integrity:
    """Checks the events of one session as they come.

    `hashes` are those that the next event may be chained to: the stored one, and the one that follows from the columns
    where the two differ, since the damage may be in either. `private_known`: the private parts were read too (an export
    has only their digests).
    """

    def __init__(self, findings: Findings, *, private_known: bool) -> None:
        self._findings = findings
        self._private_known = private_known
        self.sequence = 0
        self.hashes: tuple[bytes, ...] = (GENESIS,)
        self.erased_to = 0
        self._erasure_announced = 0

    def trusted(self, event: StoredEvent) -> bool:
        """False where columns or payload are not what was hashed, or an event is missing before this one."""
        sequence = event.sequence
        follows = sequence == self.sequence + 1
        if not follows:
            self._findings.add(sequence, "sequence", f"{sequence} follows {self.sequence}")
        self.sequence = sequence
        payload_fits = self._payload(event)
        if event.private is not None or event.private_digest is not None:
            self._private(event)
        expected = chain(
            self.hashes[0],
            event.session_id,
            sequence,
            event.event_id,
            event.type,
            event.schema_version,
            event.turn_id,
            event.created_at,
            event.payload_digest,
            event.private_digest,
            event.metadata,
        )
        if expected == event.hash:
            self.hashes = (expected,)
            return follows and payload_fits
        self._broken(event, expected, follows)
        return False

    def _broken(self, event: StoredEvent, expected: bytes, follows: bool) -> None:
        """Name what does not fit: the hash before this one and the digests have findings of their own."""
        before = self.hashes
        self.hashes = (event.hash, expected)
        if not follows:
            return  # what it is chained to is not there, so that its hash proves nothing
        for previous in before:
            if event.hash in (
                _hash(previous, event, event.payload_digest, event.private_digest),
                self._of_content(previous, event),
            ):
                self.hashes = (event.hash,)
                return
        self._findings.add(event.sequence, "chain", "the hash does not follow from the one before and the columns")

    def _of_content(self, previous: bytes, event: StoredEvent) -> bytes | None:
        """The hash with digests of what is there: equal to the stored one when only a digest column is damaged."""
        if event.salt is None:
            return None
        private = event.private_digest
        if self._private_known:
            private = None if event.private is None else digest(event.salt, event.private)
        return _hash(previous, event, digest(event.salt, event.payload), private)

    def _payload(self, event: StoredEvent) -> bool:
        if event.salt is None:
            # No digest can be checked any more, so that what is shown here must say nothing.
            if not _bare(event):
                self._findings.add(event.sequence, "erasure", "the salt is gone, and the payload is no skeleton")
                return False
            self.erased_to = event.sequence
            return True
        if digest(event.salt, event.payload) == event.payload_digest:
            if event.type == SessionErased.type:
                self._announced(event)
            return True
        self._findings.add(event.sequence, "payload_digest", "payload, salt and digest do not fit together")
        return False

    def _announced(self, event: StoredEvent) -> None:
        try:
            erased = event.event()
        except (msgspec.DecodeError, UnicodeDecodeError, KeyError):
            return  # that is a finding of those who read it
        if isinstance(erased, SessionErased):
            self._erasure_announced = max(self._erasure_announced, erased.up_to_sequence)

    def _private(self, event: StoredEvent) -> None:
        if event.salt is None:
            if event.private is not None:
                self._findings.add(event.sequence, "erasure", "the salt is gone, the private part is there")
        elif event.private is None:
            if self._private_known:
                self._findings.add(
                    event.sequence, "private_digest", "there is a digest of a private part, but no such part"
                )
        elif event.private_digest is None or digest(event.salt, event.private) != event.private_digest:
            self._findings.add(event.sequence, "private_digest", "private part, salt and digest do not fit together")

    def end(self) -> None:
        """What only the end shows."""
        if self.erased_to > self._erasure_announced:
            self._findings.add(self.erased_to, "erasure", "the salt is gone, and no session.erased reaches this far")


def _bare(event: StoredEvent) -> bool:
    """Whether an erase has left that payload. Of types and versions that this release does not know it cannot tell."""
    struct = registry.EVENT_TYPES.get(event.type)
    if struct is None or event.schema_version > struct.schema_version:
        return True
    try:
        return skeleton(event.type, event.payload) == event.payload
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False


def _hash(previous: bytes, event: StoredEvent, payload_digest: bytes, private_digest: bytes | None) -> bytes:
    return chain(
        previous,
        event.session_id,
        event.sequence,
        event.event_id,
        event.type,
        event.schema_version,
        event.turn_id,
        event.created_at,
        payload_digest,
        private_digest,
        event.metadata,
    )
