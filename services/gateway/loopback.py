"""What stands in for authentication where it is off: only this machine, and only pages that this gateway served.

Any web page can make a browser send a form to loopback, and a name of an attacker's can be made to resolve there (DNS
rebinding). The first carries a foreign Origin, the second a foreign Host.
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


def check(host: str | None, origin: str | None, allowed: Container[str] = ()) -> None:
    """Raises HostRefused, OriginRefused. No Origin is fine: then no page sent it, or it only reads. `allowed`: origins
    besides the host's own."""
    if host is None or not is_loopback(_host_of(host)):
        raise HostRefused()
    if origin is not None and origin not in (f"http://{host}", f"https://{host}") and origin not in allowed:
        raise OriginRefused()


def guard(allowed: Container[str] = ()) -> Middleware:
    """Middleware: `check` before anything is read of the request."""

    def guarded(app: ASGIApp) -> ASGIApp:
        async def checked(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == ScopeType.HTTP:
                headers = Headers.from_scope(scope)
                check(headers.get("host"), headers.get("origin"), allowed)
            await app(scope, receive, send)

        return checked

    return guarded
