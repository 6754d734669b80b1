"""What reaches a log line, and what never does."""

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from infra.telemetry.logging import REMOVED, configure


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers, root.level = handlers, level
    structlog.reset_defaults()


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_keys_that_name_secrets_or_content_lose_their_value_at_any_depth() -> None:
    stream = io.StringIO()
    configure(stream=stream, process={"role": "gateway"})
    structlog.get_logger().info(
        "turn_queued",
        turn_id="t1",
        stream_ticket="marker",
        payload={"text": "marker"},
        nested={"Authorization": "marker", "list": [{"session_token": "marker"}, {"input": "marker"}], "kept": 1},
        raw=b"marker",
    )
    (line,) = lines(stream)
    assert "marker" not in stream.getvalue()
    assert line["stream_ticket"] == line["payload"] == REMOVED
    assert line["nested"] == {
        "Authorization": REMOVED,
        "list": [{"session_token": REMOVED}, {"input": REMOVED}],
        "kept": 1,
    }
    assert (line["event"], line["turn"], line["role"], line["level"]) == ("turn_queued", "t1", "gateway", "info")


def test_a_line_names_its_session_turn_and_sequence_whoever_writes_it() -> None:
    """What the request was about is on every line of it, unless the line is about something else."""
    stream = io.StringIO()
    configure(stream=stream)
    with structlog.contextvars.bound_contextvars(session="s1", turn="t1", sequence=3):
        structlog.get_logger().info("one")
        logging.getLogger("some.library").warning("two")
        structlog.get_logger().info("three", session_id="s2", turn_id="t2", sequence=4)
    structlog.get_logger().info("four")
    told = [(line.get("session"), line.get("turn"), line.get("sequence")) for line in lines(stream)]
    assert told == [("s1", "t1", 3), ("s1", "t1", 3), ("s2", "t2", 4), (None, None, None)]
    assert "session_id" not in stream.getvalue()


def test_lines_of_libraries_go_the_same_way_and_lose_what_stands_in_urls() -> None:
    stream = io.StringIO()
    configure(stream=stream)
    logging.getLogger("some.server").warning("GET %s", "/v1/sessions/s/events?ticket=marker&after_sequence=3")
    (line,) = lines(stream)
    assert line["event"] == f"GET /v1/sessions/s/events?ticket={REMOVED}&after_sequence=3"
    assert line["level"] == "warning"


@pytest.mark.parametrize("logger", ["structlog", "logging"])
def test_an_error_in_json_is_its_type_and_place_without_its_text(logger: str) -> None:
    stream = io.StringIO()
    configure(stream=stream)
    try:
        raise ValueError("marker")
    except ValueError:
        if logger == "structlog":
            structlog.get_logger().error("it_broke", exc_info=True)
        else:
            logging.getLogger("x").exception("it broke")
    (line,) = lines(stream)
    assert line["error"] == "ValueError"
    assert __file__ in line["error_at"][-1]
    assert "marker" not in stream.getvalue()


def test_the_console_shows_tracebacks_but_no_local_variables() -> None:
    stream = io.StringIO()
    configure(format="console", stream=stream)
    hidden = "mar" + "ker"
    try:
        raise ValueError(len(hidden))
    except ValueError:
        structlog.get_logger().error("it_broke", exc_info=True)
    assert "raise ValueError" in stream.getvalue()
    assert "marker" not in stream.getvalue()


def test_below_the_level_nothing_is_written() -> None:
    stream = io.StringIO()
    configure(level="warning", stream=stream)
    structlog.get_logger().info("quiet")
    logging.getLogger("x").info("quiet")
    assert stream.getvalue() == ""
