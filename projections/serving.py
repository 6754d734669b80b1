"""The session-scoped projections of this release: what a process can append with.

During a rebuild a release carries two versions of a projection here; each session is written with the version of the
generation it is served from.
"""

from domain.ports import SessionProjection
from projections.messages.projection import Messages
from projections.turns.projection import Turns


def session_projections() -> tuple[SessionProjection, ...]:
    """One of each name and version."""
    return (Turns(), Messages())
