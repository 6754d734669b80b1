"""Names on the broker: subjects, streams and inboxes of one installation. The first token is its namespace, so that
several installations share a cluster without hearing each other."""

import re

from domain.ids import SessionId, TurnId

_NAMESPACE = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_TOKEN = re.compile(r"[A-Za-z0-9_-]{1,64}")


class InvalidToken(ValueError):
    """Text that may not stand in a subject: it could hold a separator or a wildcard and reach others' messages."""

    def __init__(self, what: str, text: str) -> None:
        super().__init__(f"not usable as the {what} of a subject: {text[:80]!r}")
        self.what = what


def stream_names(namespace: str) -> tuple[str, str, str]:
    """EVENTS, LIVE and HOOKS of an installation. Upper case is unambiguous because namespaces are lower case."""
    upper = check_namespace(namespace).upper()
    return f"{upper}_EVENTS", f"{upper}_LIVE", f"{upper}_HOOKS"


def inbox_prefix(namespace: str, role: str) -> str:
    """Clients of the role connect with this inbox prefix: the broker refuses them replies elsewhere, so that no role
    and no other installation reads the answers to somebody else's requests."""
    return f"_INBOX_{check_namespace(namespace)}_{token('role', role)}"


def check_namespace(namespace: str) -> str:
    """The namespace itself. Raises InvalidToken."""
    if _NAMESPACE.fullmatch(namespace) is None:
        raise InvalidToken("namespace", namespace)
    return namespace


def token(what: str, text: str) -> str:
    """The text itself, if it is one plain token. Raises InvalidToken."""
    if _TOKEN.fullmatch(text) is None:
        raise InvalidToken(what, text)
    return text


class Subjects:
    """Builds the subjects of one installation. Every method raises InvalidToken for what is not one plain token."""

    def __init__(self, namespace: str) -> None:
        self.namespace = check_namespace(namespace)
        self.events_stream, self.live_stream, self.hooks_stream = stream_names(namespace)
        self.all_events = f"{namespace}.session.*.event"
        self.all_live = f"{namespace}.session.*.live.*"
        self.hooks = f"{namespace}.hooks"

    def event(self, session_id: SessionId) -> str:
        return f"{self.namespace}.session.{token('session', session_id)}.event"

    def live(self, session_id: SessionId, item_id: str) -> str:
        return f"{self.namespace}.session.{token('session', session_id)}.live.{token('item', item_id)}"

    def control(self, session_id: SessionId) -> str:
        return f"{self.namespace}.session.{token('session', session_id)}.control"

    def session(self, session_id: SessionId) -> str:
        """Everything about one session, in one subscription, so that one publisher's messages keep their order."""
        return f"{self.namespace}.session.{token('session', session_id)}.>"

    def live_of(self, session_id: SessionId) -> str:
        """The temporary frames of all open items of a session."""
        return f"{self.namespace}.session.{token('session', session_id)}.live.>"

    def wake(self, pool: str) -> str:
        return f"{self.namespace}.wake.{token('pool', pool)}"

    def signal(self, turn_id: TurnId) -> str:
        return f"{self.namespace}.turn.{token('turn', turn_id)}.signal"
