"""What a rebuild came to, and why one is refused."""

import msgspec

from domain.errors import TurnlogError


class RebuildRefused(TurnlogError):
    """A rebuild that makes no sense; the text is one line."""

    code = "rebuild_refused"
    sentence = "{reason}."


class Difference(msgspec.Struct, frozen=True):
    """A row that is not what it should be. `against`: `served`, what is served now (only where both are of one
    version); `fold`, a second fold of the same events, which is a fault of the code. Values are users' content and are
    not told."""

    session_id: str
    row: str
    against: str
    columns: str


class Report(msgspec.Struct):
    """`refused`: sessions (of a feed projection: 1) that are still served from their old rows."""

    flipped: int = 0
    refused: int = 0
    differences: list[Difference] = []

    def merge(self, other: "Report") -> None:
        """Add what another part came to."""
        self.flipped += other.flipped
        self.refused += other.refused
        self.differences += other.differences
