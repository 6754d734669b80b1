"""Users' JWTs: who asks, and until when."""

from joserfc import jws, jwt
from joserfc.errors import JoseError
from joserfc.jwk import OctKey
from joserfc.jwt import ClaimsOption

from domain.clock import Clock
from domain.ids import Micros
from infra.postgres.registrations import Owner
from infra.settings.groups import Jwt
from services.gateway.keys import AnyKey, JwksFile
from services.gateway.refusals import Unauthenticated

_MAX_CLAIM_BYTES = 255
_LAST_SECOND = 253_402_300_799  # of the year 9999


def _name(claim: object) -> str:
    if not isinstance(claim, str) or "\0" in claim or len(claim.encode()) > _MAX_CLAIM_BYTES:
        raise ValueError("not a name")
    return claim


class UserTokens:
    """Reads users' JWTs: HS256 with the shared secret, RS256 and ES256 with the JWKS file, nothing else; `exp` and
    `sub` must be there."""

    def __init__(self, rules: Jwt, clock: Clock) -> None:
        """Raises ValueError without any key, or where the file holds none; OSError where it cannot be read."""
        self._secret = None if rules.secret is None else OctKey.import_key(rules.secret.get_secret_value())
        self._file = None if rules.jwks_file is None else JwksFile(rules.jwks_file, clock.monotonic)
        if self._secret is None and self._file is None:
            raise ValueError("no key")
        required: dict[str, ClaimsOption] = {"sub": {"essential": True}, "exp": {"essential": True}}
        if rules.issuer is not None:
            required["iss"] = {"essential": True, "value": rules.issuer}
        if rules.audience is not None:
            required["aud"] = {"essential": True, "value": rules.audience}
        self._claims = jwt.JWTClaimsRegistry(
            now=lambda: clock.now() // 1_000_000, leeway=int(rules.leeway_seconds), **required
        )

    def read(self, token: str) -> tuple[Owner, Micros]:
        """The user and when the token expires. Raises Unauthenticated."""
        try:
            claims = self._verified(token).claims
            self._claims.validate(claims)
            owner = Owner(_name(claims["sub"]), _name(claims.get("workspace", "")))
            return owner, Micros(int(min(claims["exp"], _LAST_SECOND) * 1_000_000))
        except (JoseError, ValueError, OverflowError) as error:
            raise Unauthenticated() from error

    def _verified(self, token: str) -> jwt.Token:
        header = jws.extract_compact(token.encode()).headers()
        algorithm, kid = header.get("alg"), header.get("kid")
        if not isinstance(algorithm, str) or not (kid is None or isinstance(kid, str)):
            raise ValueError("not a header of ours")
        failure: Exception = ValueError("no key for it")
        for key in self._keys(algorithm, kid):
            try:
                return jwt.decode(token, key, algorithms=[algorithm])
            except JoseError as error:
                failure = error
        raise failure

    def _keys(self, algorithm: str, kid: str | None) -> list[AnyKey]:
        if algorithm == "HS256":
            return [] if self._secret is None else [self._secret]
        return [] if self._file is None else self._file.keys(algorithm, kid)
