"""What each role may say and hear on the broker, for one installation (namespace).

The gateway faces the outside, so it hears sessions and asks for temporary frames, and can neither wake a worker nor
signal a turn nor write an event. Replies go to inboxes of the role's own (`inbox_prefix`), so that no role, and no
other installation on the same broker, reads the answers to somebody else's requests.
"""

from dataclasses import dataclass

from infra.nats.subjects import inbox_prefix, stream_names

ROLES = ("gateway", "agent", "worker", "projector", "operator")


@dataclass(frozen=True, slots=True)
class Permissions:
    """Subjects a user may publish to and subscribe to; what is not named is refused by the server."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]


def user_of(namespace: str, role: str) -> str:
    """The NATS user of a role."""
    return f"{namespace}-{role}"


def permissions(namespace: str, role: str) -> Permissions:
    """The permissions of `role` in the installation `namespace`."""
    ns = namespace
    events, live, hooks = stream_names(ns)
    inbox = f"{inbox_prefix(ns, role)}.>"
    direct_get = (f"$JS.API.DIRECT.GET.{live}", f"$JS.API.DIRECT.GET.{live}.>")
    # Whoever publishes makes the streams if they are gone (a wiped broker heals by itself) and clears finished items.
    keeps = tuple(
        f"$JS.API.STREAM.{verb}.{stream}"
        for stream in (events, live, hooks)
        for verb in ("CREATE", "UPDATE", "INFO", "PURGE")
    )
    says: tuple[str, ...]
    if role == "gateway":
        return Permissions((*direct_get, f"{ns}.session.*.control"), (f"{ns}.session.>", inbox))
    if role == "agent":
        says = (f"{ns}.session.*.event", f"{ns}.session.*.control", f"{ns}.wake.*", f"{ns}.turn.*.signal")
        return Permissions((*says, *keeps, "$JS.API.INFO"), (f"{ns}.session.*.event", inbox))
    if role == "worker":
        says = (f"{ns}.session.*.event", f"{ns}.session.*.live.*", f"{ns}.wake.*", f"{ns}.turn.*.signal", f"{ns}.hooks")
        pulls = _consumes(hooks)
        return Permissions((*says, *keeps, *pulls, "$JS.API.INFO"), (f"{ns}.wake.*", f"{ns}.turn.*.signal", inbox))
    if role == "projector":
        says = (f"{ns}.session.*.event", f"{ns}.wake.*")
        return Permissions(
            (*says, *keeps, *_consumes(events), "$JS.FC.>", "$JS.API.INFO"), (f"{ns}.session.*.event", inbox)
        )
    if role == "operator":
        return Permissions((f"{ns}.>", "$JS.API.>", "$JS.ACK.>", "$JS.FC.>"), (f"{ns}.>", inbox))
    raise ValueError(f"no such role: {role}")


def _consumes(stream: str) -> tuple[str, ...]:
    verbs = (
        "CONSUMER.CREATE",
        "CONSUMER.DURABLE.CREATE",
        "CONSUMER.INFO",
        "CONSUMER.DELETE",
        "CONSUMER.MSG.NEXT",
        "STREAM.MSG.GET",
    )
    names = tuple(f"$JS.API.{verb}.{stream}" for verb in verbs)
    return (*names, *(f"{name}.>" for name in names), f"$JS.ACK.{stream}.>")
