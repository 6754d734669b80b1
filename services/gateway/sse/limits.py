"""Times and sizes of delivery; the gateway's settings fill it, the defaults are the documented ones."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Seconds and bytes."""

    viewers: int = 20_000
    """Of this process; the next one is told to come back later."""

    viewer_buffer_bytes: int = 1 << 20
    """What may wait for one viewer, beside at most 64 KiB and one write in its transport."""

    open_items_bytes: int = 128 << 20
    """Texts of open items that are kept for viewers who join, of all sessions; beyond it they wait for the
    completion."""

    tail_bytes: int = 512 << 10
    """Newest events that are kept of one session with viewers, ready for whoever comes back: at most a page."""

    tails_bytes: int = 64 << 20
    """The same of all sessions."""

    comment_seconds: float = 10.0
    """No stream is silent for longer: proxies cut silent ones, often after 60 s, some after 15."""

    heads_seconds: float = 5.0
    """How often all sessions with viewers are compared with the store: what heals a lost last notification."""

    hold_seconds: float = 0.02
    """How long a jump is held before a replay: two publishers of one session may swap."""

    recheck_seconds: float = 0.25
    """After an attach and after a terminal event: heals what was lost right then sooner than `heads_seconds` does."""

    attach_seconds: float = 5.0
    """How long an attach waits for an agent service that does not answer."""

    subscribe_seconds: float = 2.0
    """A broker that has not confirmed a subscription by then is taken for away."""

    heads_timeout_seconds: float = 4.0
    """For one `heads` request: the next one must not wait for an agent service that hangs."""

    heads_burst: int = 20
    heads_a_second: float = 25.0
    """So many `heads` requests at once, then at this pace: streams that are opened in a storm wait 40 ms for others."""

    heal_retry_seconds: float = 1.0
    """Longest pause between tries of a replay that fails."""

    pages_in_flight: int = 16
    """Replay pages asked for at once by this process: a reconnect storm must not become a storm of queries."""

    retry_milliseconds: tuple[int, int] = (1_000, 3_000)
    """`retry:` is drawn from here, so that clients of one gateway do not return in the same instant."""

    retry_overloaded_milliseconds: tuple[int, int] = (5_000, 15_000)

    stream_seconds: float = 1_800.0
    """How long a stream lasts, and up to a fifth longer: balancers get their connections spread anew, and nothing that
    leaks in a connection leaks for ever. Its client comes back where it was."""

    linger_seconds: float = 30.0
    """A peer that has not taken its farewell by then is cut."""
