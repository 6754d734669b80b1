"""Users' JWTs: what is read of them and what is refused."""

import base64
import hashlib
import hmac
import json
from pathlib import Path
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, OctKey, RSAKey
from pydantic import SecretStr

from infra.memory.clock import ManualClock
from infra.postgres.registrations import Owner
from infra.settings.groups import Jwt
from services.gateway.refusals import Unauthenticated
from services.gateway.user_tokens import UserTokens

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


RSA, OTHER_RSA, SMALL_RSA = (RSAKey.generate_key(bits, auto_kid=False) for bits in (2048, 2048, 1024))
EC, P384 = ECKey.generate_key("P-256", auto_kid=False), ECKey.generate_key("P-384", auto_kid=False)
GOOD = {"sub": "ann", "exp": NOW + 10}


def _public(key: Any, **fields: Any) -> dict[str, Any]:
    return {**key.as_dict(private=False), **fields}


def _written(path: Path, *keys: dict[str, Any]) -> Path:
    path.write_text(json.dumps({"keys": list(keys)}))
    return path


def _by(key: Any, alg: str, **header: Any) -> str:
    return jwt.encode({"alg": alg, **header}, GOOD, key, algorithms=[alg])


def test_rs256_and_es256_with_the_keys_of_a_file(tmp_path: Path) -> None:
    path = _written(tmp_path / "jwks.json", _public(RSA, kid="r"), _public(EC, kid="e", alg="ES256", use="sig"))
    users = UserTokens(Jwt(jwks_file=path), ManualClock(NOW * 1_000_000))
    for token in (_by(RSA, "RS256", kid="r"), _by(EC, "ES256", kid="e"), _by(RSA, "RS256"), _by(EC, "ES256")):
        assert users.read(token)[0] == Owner("ann")
    public_pem = RSA.as_pem(private=False).decode()
    refused = [
        _by(OTHER_RSA, "RS256", kid="r"),
        _by(RSA, "RS256", kid="x"),
        _by(RSA, "PS256", kid="r"),
        _by(RSA, "RS512", kid="r"),
        _signed(GOOD),
        _raw({"alg": "HS256", "kid": "r"}, json.dumps(GOOD).encode(), public_pem.encode()),
        _raw({"alg": "HS256"}, json.dumps(GOOD).encode(), json.dumps(_public(RSA)).encode()),
        _raw({"alg": "none"}, json.dumps(GOOD).encode()).rpartition(".")[0] + ".",
        _raw({"alg": ["RS256"]}, json.dumps(GOOD).encode()),
        _raw({"alg": "RS256", "kid": 7}, json.dumps(GOOD).encode()),
    ]
    for token in refused:
        with pytest.raises(Unauthenticated):
            users.read(token)


def test_what_a_token_says_of_its_own_key_is_not_heard(tmp_path: Path) -> None:
    """A key, an address or a certificate in the header, a kid that is a path or a query, `crit`, a key of the other
    kind, the public key as the shared secret, several algorithms in one header."""
    path = _written(tmp_path / "jwks.json", _public(RSA, kid="r"), _public(EC, kid="e"))
    users = UserTokens(Jwt(secret=SecretStr(SECRET), jwks_file=path), ManualClock(NOW * 1_000_000))
    body = json.dumps(GOOD).encode()
    users.read(_raw({"alg": "HS256", "kid": "r"}, body))
    secrets = (
        RSA.as_pem(private=False),
        RSA.as_der(private=False),
        json.dumps(_public(RSA, kid="r")).encode(),
        json.dumps({"keys": [_public(RSA, kid="r")]}).encode(),
        path.read_bytes(),
        EC.as_pem(private=False),
        b"",
    )
    forged = [_raw({"alg": "HS256", "kid": kid}, body, key) for key in secrets for kid in ("r", "e", "../jwks.json")]
    forged += [
        _by(OTHER_RSA, "RS256", kid="r", jwk=_public(OTHER_RSA)),
        _by(OTHER_RSA, "RS256", jwk=_public(OTHER_RSA, kid="r"), x5c=["MII"]),
        _by(OTHER_RSA, "RS256", kid="r", jku="https://evil.example/jwks.json", x5u="https://evil.example/"),
        *(_by(OTHER_RSA, "RS256", kid=kid) for kid in ("", "/dev/null", "r' OR '1'='1", "r\x00", "R")),
        _raw({"alg": "ES256", "kid": "r"}, body),
        _raw({"alg": "RS256", "kid": "e"}, body),
        _raw({"alg": "HS256", "crit": ["kid"], "kid": "r"}, body, b"x"),
        _raw({"alg": "hs256"}, body),
        _raw({"alg": "HS256 "}, body),
        _raw({"alg": "HS384"}, body),
        _raw({"alg": "HS256", "zip": "DEF", "enc": "A128GCM"}, body, b"x"),
    ]
    header, claims, signature = _by(RSA, "RS256", kid="r").split(".")
    none = base64.urlsafe_b64encode(b'{"alg":"RS256","alg":"none"}').rstrip(b"=").decode()
    forged += [
        f"{none}.{claims}.",
        f"{none}.{claims}.{signature}",
        f"{header}.{claims}.AAAA",
        f"{header}.{claims}.{'A' * 342}",
    ]
    for token in forged:
        with pytest.raises(Unauthenticated):
            users.read(token)


def test_a_files_keys_are_used_for_what_they_are_meant_for_only(tmp_path: Path) -> None:
    path = tmp_path / "jwks.json"
    for keys in (
        [],
        [_public(RSA, use="enc")],
        [_public(RSA, alg="RS512")],
        [_public(P384)],
        [_public(SMALL_RSA)],
        [{"kty": "oct", "k": "c2VjcmV0"}],
        [{"kty": "RSA", "n": "x"}],
        [_public(EC, kid=str(number)) for number in range(65)],
        [_public(EC, note="x" * 1024 * 1024)],
    ):
        with pytest.raises(ValueError, match=r"key|JWKS"):
            UserTokens(Jwt(jwks_file=_written(path, *keys)), ManualClock())
    for content in ("", "[]", '{"keys": 5}', '{"keys": [5]}'):
        path.write_text(content)
        with pytest.raises(ValueError, match=r"JWKS|JSON|value"):
            UserTokens(Jwt(jwks_file=path), ManualClock())


def test_a_changed_file_is_read_again_and_a_broken_one_changes_nothing(tmp_path: Path) -> None:
    path, clock = _written(tmp_path / "jwks.json", _public(RSA, kid="r")), ManualClock(NOW * 1_000_000)
    users = UserTokens(Jwt(secret=SecretStr(SECRET), jwks_file=path), clock)
    users.read(_signed(GOOD))
    users.read(_by(RSA, "RS256"))
    with pytest.raises(Unauthenticated):
        users.read(_by(EC, "ES256"))
    for change, works, refused in (
        (lambda: _written(path, _public(EC, kid="e"), _public(RSA, kid="r")), (RSA, EC), ()),
        (lambda: path.write_text("half of"), (RSA, EC), ()),
        (path.unlink, (RSA, EC), ()),
        (lambda: _written(path, _public(EC, kid="e")), (EC,), (RSA,)),
    ):
        change()
        clock.advance(1.5)
        for key in works:
            users.read(_by(key, "RS256" if key is RSA else "ES256"))
        for key in refused:
            with pytest.raises(Unauthenticated):
                users.read(_by(key, "RS256"))
