"""What stands in for authentication where it is off: only this machine, and only pages that this gateway served.

Any web page can make a browser send a form to loopback, and a name of an attacker's can be made to resolve there (DNS
rebinding). The first carries a foreign Origin, the second a foreign Host. A picture or script that a foreign page asks
for carries no Origin; browsers say of it that it comes from another site.
"""

import ipaddress
from collections.abc import Container
from urllib.parse import urlsplit

from litestar.datastructures import Headers
from litestar.enums import ScopeType
from litestar.types import ASGIApp, Middleware, Receive, Scope, Send

from services.gateway.refusals import HostRefused, OriginRefused


def is_loopback(host: str) -> bool:
    """True for localhost, its subdomains, and addresses that mean this machine only."""
    name = host.strip("[]").rstrip(".").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _host_of(authority: str) -> str:
    try:
        return urlsplit(f"//{authority}").hostname or ""
    except ValueError:
        return ""


def _foreign(method: str, headers: Headers) -> bool:
    """A browser says that a page of another site asks for it. Following a link is not that."""
    follows = method in ("GET", "HEAD") and headers.get("sec-fetch-mode") == "navigate"
    return headers.get("sec-fetch-site") == "cross-site" and not follows


def check(host: str | None, origin: str | None, allowed: Container[str] = (), *, foreign: bool = False) -> None:
    """Raises HostRefused, OriginRefused. No Origin is fine unless it is `foreign`: then no page sent it, or one of ours
    that only reads. `allowed`: origins besides the host's own."""
    if host is None or not is_loopback(_host_of(host)):
        raise HostRefused()
    if foreign and origin not in allowed:
        raise OriginRefused()
    if origin is not None and origin not in (f"http://{host}", f"https://{host}") and origin not in allowed:
        raise OriginRefused()


def guard(allowed: Container[str] = ()) -> Middleware:
    """Middleware: `check` before anything is read of the request."""

    def guarded(app: ASGIApp) -> ASGIApp:
        async def checked(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == ScopeType.HTTP:
                headers = Headers.from_scope(scope)
                check(headers.get("host"), headers.get("origin"), allowed, foreign=_foreign(scope["method"], headers))
            await app(scope, receive, send)

        return checked

    return guarded
