"""Every error has a status; refusals carry their data; nothing tells what a stranger's exception says."""

import json

import pytest

from domain import errors
from infra.memory.clock import ManualClock
from infra.postgres.registrations import Owner, RegistrationsUnavailable
from services.agent import refusals as agent_refusals
from services.gateway import refusals
from services.gateway.agent_client import UnclearReply, _refusal
from services.gateway.problems import STATUS, problem_of
from services.gateway.rates import RateLimited, Rates

EXPECTED = [
    (errors.SessionNotFound(), 404),
    (errors.AgentNotFound(agent_id="x"), 404),
    (errors.IdempotencyMismatch(), 409),
    (errors.SessionBusy(active_turn_id="t"), 409),
    (errors.StaleFence(), 409),
    (errors.BadCursor(), 400),
    (errors.UnknownRequirement(tool_call_id="c"), 422),
    (errors.InputTooLarge(size=2, limit=1), 413),
    (errors.QueueFull(depth=100), 429),
    (errors.MinSequenceTimeout(min_sequence=9, as_of_sequence=3), 504),
    (errors.LockTimeout(seconds=2), 503),
    (errors.AgentUnavailable(), 503),
    (errors.VersionMismatch(have=1, need=2, name="turns"), 503),
    (errors.Unstorable(sqlstate="22P05"), 422),
    (errors.InternalFault(), 500),
    (RegistrationsUnavailable(), 503),
    (RateLimited(limit=1, retry_after=7), 429),
    (refusals.Unauthenticated(), 401),
    (refusals.UserNeeded(), 403),
    (refusals.SessionGone(external_id="x"), 410),
    (refusals.ExternalIdTaken(session_id="s"), 409),
    (refusals.BadListCursor(), 400),
    (refusals.InvalidRequest(errors=[]), 422),
]

KINDS = [kind for kind in errors.BY_CODE.values() if kind is not errors.TurnlogError]


@pytest.mark.parametrize(("error", "status"), EXPECTED, ids=lambda value: getattr(value, "code", None))
def test_statuses(error: errors.TurnlogError, status: int) -> None:
    response = problem_of(error)
    body = json.loads(response.content)
    assert (response.status_code, body["status"], response.media_type) == (status, status, "application/problem+json")
    assert body["type"] == f"urn:turnlog:problem:{error.code}"
    assert body["detail"]
    assert "?" not in body["detail"]
    assert {name: body[name] for name in error.fields} == error.fields
    assert ("Retry-After" in response.headers) == (status in (429, 503))
    assert ("WWW-Authenticate" in response.headers) == (status == 401)


def test_a_field_never_hides_a_standard_member() -> None:
    body = json.loads(problem_of(errors.TurnNotCancellable(status="running")).content)
    assert (body["status"], body["turn_status"]) == (409, "running")
    assert "interrupt" in body["detail"]


def test_every_error_of_the_domain_has_a_status_on_both_sides() -> None:
    for kind in KINDS:
        assert any(issubclass(kind, known) for known, _, _ in STATUS), kind
        assert any(issubclass(kind, known) for known, _ in agent_refusals.STATUS), kind


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.code)
def test_an_error_crosses_the_internal_api_as_itself(kind: type[errors.TurnlogError]) -> None:
    fields = {"status": "queued", "limit": 5}
    carried = agent_refusals.refusal(409, kind.code, fields)
    raised = _refusal(409, carried.content)
    assert type(raised) is kind
    assert isinstance(raised, errors.TurnlogError)
    assert raised.fields == fields


@pytest.mark.parametrize("content", [b"", b"<html>", b"{}", b'{"code":"http_500","fields":{}}', b'{"code":5}', b"[]"])
def test_what_is_no_refusal_is_unclear(content: bytes) -> None:
    assert isinstance(_refusal(502, content), UnclearReply)


def test_rates_refill_with_time_and_are_each_users_own() -> None:
    clock = ManualClock()
    rates = Rates(2, clock)
    ann, bob = Owner("ann"), Owner("bob")
    rates.take(ann)
    rates.take(ann)
    with pytest.raises(RateLimited) as refused:
        rates.take(ann)
    assert refused.value.fields["retry_after"] <= 31
    rates.take(bob)
    clock.advance(30.0)
    rates.take(ann)
    with pytest.raises(RateLimited):
        rates.take(ann)
