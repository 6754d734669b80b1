"""Clusters that stand for all tests of a module."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.support.cluster import Cluster, Clusters
from tests.support.servers import LoopThread


class StandingClusters:
    """They live on an event loop in a thread of their own, since a test's loop ends with it."""

    def __init__(self, clusters: Clusters, version: str) -> None:
        self._clusters = clusters
        self._version = version

    @contextmanager
    def start(self, **what: Any) -> Iterator[Cluster]:
        """A running cluster; `what` as `Clusters.start` takes it."""
        thread = LoopThread()
        try:
            with self.start_on(thread, **what) as cluster:
                yield cluster
        finally:
            thread.close()

    @contextmanager
    def start_on(self, thread: LoopThread, **what: Any) -> Iterator[Cluster]:
        """The same on a loop that the test works with, too."""
        context = self._clusters.start(version=self._version, **what)
        cluster = thread.run(context.__aenter__())
        try:
            yield cluster
        finally:
            thread.run(context.__aexit__(None, None, None))
