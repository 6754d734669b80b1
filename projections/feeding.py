"""The feed projections of this release."""

from domain.ports import FeedProjection
from projections.hooks.projection import Hooks
from projections.search.projection import Search
from projections.session_overview.projection import SessionOverview
from projections.usage.projection import Usage


def feed_projections() -> tuple[FeedProjection, ...]:
    """One of each name; one's own are added by `--projection module:Name`."""
    return (SessionOverview(), Usage(), Search(), Hooks())
