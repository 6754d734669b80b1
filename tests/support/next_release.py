"""A release to come: version 2 of `messages`, beside the one of today. Processes of a cluster that have
`TESTS_RELEASE=tests.support.next_release` in their environment are of that release (see nursery.py)."""

from projections.messages.projection import Messages
from projections.turns.projection import Turns


class NextMessages(Messages):
    """Whatever changed, its rows are another generation's."""

    version = 2


def session_projections() -> tuple[Turns, Messages, NextMessages]:
    """What that release carries, until the rebuild is over everywhere."""
    return (Turns(), Messages(), NextMessages())


def install() -> None:
    """In this process, for good."""
    from services import wiring
    from services.projector import main

    for module in (wiring, main):
        module.session_projections = session_projections  # type: ignore[attr-defined]
