"""Names that callers choose, and session tokens."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.ids import SessionId
from services.gateway import tokens
from services.gateway.loopback import check, is_loopback
from services.gateway.names import BadIdempotencyKey, external_id_fault, idempotency_key
from services.gateway.refusals import HostRefused, OriginRefused

SESSION = SessionId("0190a000-0000-7000-8000-000000000001")


@given(st.text(max_size=300))
def test_an_external_id_is_printable_and_fits_into_a_path(name: str) -> None:
    fine = 1 <= len(name) <= 255 and name.isprintable() and not set(name) & set("/\\?#") and name not in (".", "..")
    assert (external_id_fault(name) is None) == fine


@pytest.mark.parametrize("name", ["*", ">", "a.b", "a b", "...", "ü", "%2F", "x" * 255])
def test_odd_names_are_fine(name: str) -> None:
    assert external_id_fault(name) is None


@pytest.mark.parametrize("key", ["", "x" * 256, "ü", "a\nb", "\x7f", "\0"])
def test_other_idempotency_keys_are_refused(key: str) -> None:
    with pytest.raises(BadIdempotencyKey):
        idempotency_key(key)


def test_idempotency_keys_are_taken_as_they_are() -> None:
    assert idempotency_key(" a~!") == " a~!"


def test_a_session_token_opens_only_while_its_digest_is_stored() -> None:
    token, other = tokens.mint(SESSION), tokens.mint(SESSION)
    assert token != other
    assert tokens.session_of(token) == SESSION
    assert tokens.opens(token, tokens.digest(token))
    assert not tokens.opens(other, tokens.digest(token))
    assert not tokens.opens(token, None)


@given(st.text(max_size=90))
def test_nothing_else_is_a_session_token(text: str) -> None:
    assert tokens.session_of("tls_" + text) is None or len(text) == 76


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "localhost", "LOCALHOST", "a.localhost", "::1", "[::1]"])
def test_loopback(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["", "0.0.0.0", "::", "10.0.0.1", "example.org", "localhost.example", "127.0.0.1.x"])
def test_not_loopback(host: str) -> None:
    assert not is_loopback(host)


def test_only_pages_of_the_host_itself_may_send() -> None:
    for host in ("localhost:8080", "127.0.0.1:8080", "[::1]:8080", "localhost"):
        check(host, None)
        check(host, f"http://{host}")
    with pytest.raises(HostRefused):
        check(None, None)
    for host in (
        "",
        "evil.example",
        "evil.example:8080",
        "localhost@evil.example",
        "[",
        "127.0.0.1.evil.example",
    ):
        with pytest.raises(HostRefused):
            check(host, None)
    for origin in ("null", "", "http://evil.example", "http://localhost:3000", "http://localhost", "file://"):
        with pytest.raises(OriginRefused):
            check("localhost:8080", origin)
    check("localhost:8080", "http://localhost:3000", {"http://localhost:3000"})
