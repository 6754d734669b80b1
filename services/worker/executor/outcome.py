"""How a leg ended."""

from typing import Literal

import msgspec

from domain.parts import Failure, Requirement

_OUTPUT_BYTES = 64 * 1024
"""A longer output is left out of `turn.completed`: the items have its text."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What the command that ends the leg says."""

    kind: Literal["completed", "failed", "interrupted", "paused", "released"]
    output: str | None = None
    error: Failure | None = None
    requirements: list[Requirement] = []

    @property
    def cut_off(self) -> bool:
        """What is open did not end by itself."""
        return self.kind in ("failed", "interrupted", "released")


def completed(output: str | None) -> Outcome:
    """A leg that ran to its end."""
    if output is not None and len(output.encode("utf-8", "surrogatepass")) > _OUTPUT_BYTES:
        output = None
    return Outcome(kind="completed", output=output)
