"""Names on the broker."""

from collections.abc import Callable

import pytest

from domain.ids import SessionId, TurnId
from infra.nats.options import BrokerOptions
from infra.nats.subjects import InvalidToken, Subjects, stream_names

NAMES = Subjects("turnlog")
SESSION = SessionId("s")


def test_they_are_those_of_the_design() -> None:
    assert NAMES.event(SESSION) == "turnlog.session.s.event"
    assert NAMES.live(SESSION, "i") == "turnlog.session.s.live.i"
    assert NAMES.control(SESSION) == "turnlog.session.s.control"
    assert NAMES.session(SESSION) == "turnlog.session.s.>"
    assert NAMES.wake("default") == "turnlog.wake.default"
    assert NAMES.signal(TurnId("t")) == "turnlog.turn.t.signal"
    assert NAMES.hooks == "turnlog.hooks"
    assert stream_names("turnlog") == ("TURNLOG_EVENTS", "TURNLOG_LIVE", "TURNLOG_HOOKS")


@pytest.mark.parametrize("text", ["", "*", ">", "a.b", "a b", "a\n", "a\r\nPUB x 0\r\n", "ä", "a" * 65])
@pytest.mark.parametrize(
    "build",
    [
        lambda text: NAMES.event(SessionId(text)),
        lambda text: NAMES.live(SessionId(text), "i"),
        lambda text: NAMES.live(SESSION, text),
        lambda text: NAMES.live_of(SessionId(text)),
        lambda text: NAMES.control(SessionId(text)),
        lambda text: NAMES.session(SessionId(text)),
        NAMES.wake,
        lambda text: NAMES.signal(TurnId(text)),
        Subjects,
        lambda text: BrokerOptions(namespace="turnlog", role=text, servers=()).inbox_prefix,
    ],
)
def test_nothing_but_a_plain_token_gets_in(build: Callable[[str], object], text: str) -> None:
    with pytest.raises(InvalidToken):
        build(text)


def test_namespaces_that_differ_have_streams_that_differ() -> None:
    for namespace in ("Turnlog", "TURNLOG", "1", "-a"):
        with pytest.raises(InvalidToken):
            stream_names(namespace)


def test_options_show_no_password() -> None:
    options = BrokerOptions(namespace="turnlog", role="agent", servers=("nats://h:1",), user="u", password="hidden")
    assert "hidden" not in repr(options)
