"""Users' JWTs: what is read of them and what is refused."""

import base64
import hashlib
import hmac
import json
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import OctKey, RSAKey
from pydantic import SecretStr

from infra.memory.clock import ManualClock
from infra.postgres.registrations import Owner
from infra.settings.groups import Jwt
from services.gateway.auth import UserTokens
from services.gateway.refusals import Unauthenticated

SECRET = "a secret of tests, thirty-two bytes or more"
NOW = 1_800_000_000


def _users(**rules: Any) -> UserTokens:
    return UserTokens(Jwt(secret=SecretStr(SECRET), leeway_seconds=0.0, **rules), ManualClock(NOW * 1_000_000))


def _signed(claims: dict[str, Any], key: str = SECRET, alg: str = "HS256") -> str:
    return jwt.encode({"alg": alg}, claims, OctKey.import_key(key), algorithms=[alg])


def _raw(header: dict[str, Any], body: bytes, key: bytes = SECRET.encode()) -> str:
    def part(data: bytes) -> str:
        return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

    signed = part(json.dumps(header).encode()) + "." + part(body)
    return signed + "." + part(hmac.digest(key, signed.encode(), hashlib.sha256))


def test_user_workspace_and_expiry_are_read() -> None:
    owner, expires = _users().read(_signed({"sub": "ann", "exp": NOW + 10}))
    assert (owner, expires) == (Owner("ann"), (NOW + 10) * 1_000_000)
    _, latest = _users().read(_signed({"sub": "ann", "exp": 10**400}))
    assert expires < latest < 2**63
    owner, _ = _users().read(_signed({"sub": "ann", "exp": NOW + 10, "workspace": "w"}))
    assert owner == Owner("ann", "w")


@pytest.mark.parametrize(
    "claims",
    [
        {"sub": "ann"},
        {"exp": NOW + 10},
        {"sub": "", "exp": NOW + 10},
        {"sub": 5, "exp": NOW + 10},
        {"sub": ["ann"], "exp": NOW + 10},
        {"sub": "a\0b", "exp": NOW + 10},
        {"sub": "x" * 256, "exp": NOW + 10},
        {"sub": "ann", "exp": NOW + 10, "workspace": 7},
        {"sub": "ann", "exp": NOW},
        {"sub": "ann", "exp": NOW - 1},
        {"sub": "ann", "exp": "never"},
        {"sub": "ann", "exp": True},
        {"sub": "ann", "exp": NOW + 10, "nbf": NOW + 5},
    ],
)
def test_other_claims_are_refused(claims: dict[str, Any]) -> None:
    with pytest.raises(Unauthenticated):
        _users().read(_signed(claims))


def test_issuer_and_audience_are_required_where_settings_say_so() -> None:
    users = _users(issuer="https://id.example", audience="turnlog")
    good = {"sub": "ann", "exp": NOW + 10, "iss": "https://id.example", "aud": ["other", "turnlog"]}
    users.read(_signed(good))
    others: list[dict[str, Any]] = [{"iss": "x"}, {"aud": "x"}, {"aud": []}]
    for wrong in others:
        with pytest.raises(Unauthenticated):
            users.read(_signed(good | wrong))
    for missing in ("iss", "aud"):
        with pytest.raises(Unauthenticated):
            users.read(_signed({name: value for name, value in good.items() if name != missing}))


def test_other_signatures_and_algorithms_are_refused() -> None:
    good = {"sub": "ann", "exp": NOW + 10}
    body = json.dumps(good).encode()
    header, claims, signature = _signed(good).split(".")
    rsa = jwt.encode({"alg": "RS256"}, good, RSAKey.generate_key(2048), algorithms=["RS256"])
    refused = [
        _signed(good, key="another secret, thirty-two bytes or more"),
        _signed(good, alg="HS512"),
        rsa,
        _raw({"alg": "none"}, body),
        _raw({"alg": "none"}, body).rpartition(".")[0] + ".",
        _raw({"alg": "None"}, body),
        _raw({}, body),
        _raw({"alg": "HS256", "crit": ["exp"], "b64": False}, body),
        _raw({"alg": "HS256"}, b'{"sub":"\\ud800","exp":%d}' % (NOW + 10)),
        _raw({"alg": "HS256"}, b'{"sub":"ann","exp":NaN}'),
        _raw({"alg": "HS256"}, b'{"sub":"ann","exp":Infinity}'),
        _raw({"alg": "HS256"}, b"[]"),
        _raw({"alg": "HS256"}, b"\xff"),
        f"{header}.{claims}.",
        f"{header}.{claims}",
        f"{header}.{claims}.{signature}.{signature}",
        f"{header}.{claims}A.{signature}",
        "",
        "...",
    ]
    users = _users()
    users.read(_raw({"alg": "HS256"}, body))
    for token in refused:
        with pytest.raises(Unauthenticated):
            users.read(token)
