"""What an audit says: findings, and the rules they are named after."""

import msgspec

FINDINGS_PER_SESSION = 10_000
"""A damaged session may break a rule at every event; the report stays bounded."""

RULES: dict[str, str] = {
    "sequence": "sequences run 1, 2, 3 … without a gap or a repeat",
    "chain": "each hash follows from the one before it and from the event's own columns",
    "payload_digest": "the payload digest is sha256(salt ‖ payload)",
    "private_digest": "the private digest is sha256(salt ‖ private part)",
    "payload": "the payload is JSON of the shape of its type and version",
    "erasure": "a payload lacks its salt only where a session.erased says so, and is a skeleton then",
    "transition": "the event may follow what came before, by the domain's own fold",
    "closed": "nothing follows session.closed but session.erased and ends of background hooks",
    "one_active": "at most one turn of a session is running or paused",
    "queue_order": "turns start in the order in which they were accepted, and only while the queue is open",
    "attempt": "attempts count 1, 2, 3 …, start at their own frame base, and only the newest one writes",
    "tool_known": "a tool starts, and has results, only for a call that is in the log",
    "tool_once": "a tool is not started twice unless it is idempotent, and never after its final result",
    "tool_result": "revisions of a tool's result ascend and end with the final one",
    "tool_before_end": "tool results come before the end of their turn, which completes only with each of them final",
    "frames": "frame numbers of an attempt are used once and ascend with the sequence",
    "frames_dense": "an attempt that ended by its own hand has used every number from its base on",
    "item_frames": "runs and cuts of an item cover its text, its start and its completion",
    "turns": "rows of the turns read model equal a fresh fold, column by column",
    "messages": "rows of the messages read model equal a fresh fold, column by column",
    "head": "the stream head (the row of sessions) equals a fresh fold, column by column",
    "replies": "kept replies of commands say what the log says",
    "blobs": "stored attachments have the content their name is the SHA-256 of, and those that inputs name are there",
    "anchor": "what was signed earlier is still there: the anchored sequence with the anchored hash",
    "export": "every line of an export file has the documented form and belongs to one session",
}
"""Rule -> what it demands, in one line. Names are stable: other tools match on them."""


class Finding(msgspec.Struct, frozen=True):
    """One broken rule at one place; `sequence` is 0 where no event is concerned. `detail` holds no user content."""

    session_id: str
    sequence: int
    rule: str
    detail: str


class SessionReport(msgspec.Struct):
    """What the audit of one session came to. `skipped`: events of types or versions this release does not know, and
    how many. `judged_to`: the last event that the rules beyond chain and digests were applied to; after an event that
    cannot be trusted a fold would mean nothing. `blobs`: attachments that inputs name, with the sequence that does."""

    session_id: str
    events: int = 0
    judged_to: int = 0
    erased_to: int = 0
    blobs: dict[str, int] = {}
    skipped: dict[str, int] = {}
    findings: list[Finding] = []


class Findings:
    """Collects the findings of one session."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self.all: list[Finding] = []

    def add(self, sequence: int, rule: str, detail: str) -> None:
        """`rule` is one of RULES."""
        if len(self.all) < FINDINGS_PER_SESSION:
            self.all.append(Finding(self.session_id, sequence, rule, detail))
