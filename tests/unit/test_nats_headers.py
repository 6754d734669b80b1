"""Header blocks as a server writes them."""

import pytest

from infra.nats.headers import header_fields


@pytest.mark.parametrize(
    ("block", "status", "fields"),
    [
        (None, "", {}),
        (b"", "", {}),
        (b"NATS/1.0\r\nNats-Msg-Id: s:1\r\n\r\n", "", {"Nats-Msg-Id": "s:1"}),
        (b"NATS/1.0\r\nNats-Subject:a.b\r\nEmpty:\r\nOdd\r\nTime: 10:20\r\n\r\n", "", None),
        (b"NATS/1.0 204 EOB\r\nNats-Num-Pending: 7\r\n\r\n", "204", {"Nats-Num-Pending": "7"}),
        (b"NATS/1.0 404 Message Not Found\r\n\r\n", "404", {}),
        (b"NATS/1.0 503\r\n\r\n", "503", {}),
    ],
)
def test_status_and_fields(block: bytes | None, status: str, fields: dict[str, str] | None) -> None:
    expected = {"Nats-Subject": "a.b", "Empty": "", "Time": "10:20"} if fields is None else fields
    assert header_fields(block) == (status, expected)
