"""Spans, as the rest of the code sees them: started with a parent that came over a wire, ended by hand.

Whoever has no `Traces` has None, and asks nothing: off costs a comparison with None, and imports nothing. The words of
a span are ids and numbers, never what people, models or tools wrote.
"""

from typing import Protocol


class Span(Protocol):
    """One step of a request. `traceparent`: what makes the next step, in this process or another, its child."""

    @property
    def traceparent(self) -> str: ...

    def end(self, failed: str | None = None) -> None:
        """Ends it now; `failed`: the code of the error that it ended with. A second call does nothing."""
        ...


class Traces(Protocol):
    """Where spans begin. Nothing here waits or raises."""

    def start(self, name: str, parent: str | None, **attributes: str | int | None) -> Span:
        """A span that begins now. `parent`: a W3C traceparent; None, or one that is none, begins a trace."""
        ...
