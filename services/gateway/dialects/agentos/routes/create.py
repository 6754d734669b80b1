"""`POST /{agents,teams,workflows}/{id}/runs`: begin a run."""

from typing import Any

import msgspec
from litestar import Response, post
from litestar.params import FromPath

from domain.commands import SubmitTurn
from domain.errors import AttachmentMissing, IdempotencyMismatch, TurnIdTaken
from domain.ids import CommandKey, TurnId
from domain.parts import TextPart
from infra.postgres.registrations import Registration
from services.gateway.agent_client import CommandAnswer
from services.gateway.auth import Access
from services.gateway.beginning import begin
from services.gateway.dialects.agentos.answers import Refused
from services.gateway.dialects.agentos.finding import Finder, TurnFacts, session_metadata
from services.gateway.dialects.agentos.forms import MEDIA, Form, HttpRequest
from services.gateway.dialects.agentos.opening import name_for_key, open_session
from services.gateway.dialects.agentos.posted import Posted, UploadLimits
from services.gateway.dialects.agentos.routes.common import Find, IdempotencyKey, paths
from services.gateway.dialects.agentos.starting import Wishes, answer, open_queue
from services.gateway.dialects.agentos.uploads import keep, may_begin, metadata_of, take_media
from services.gateway.names import external_id_fault, idempotency_key
from services.gateway.routes.turns import trace_of

_DECLARED = frozenset(
    (
        *("message", "stream", "background", "session_id", "user_id", "run_id", "files", "files_metadata", "version"),
        *("factory_input", "monitor", "stream_events"),
        *MEDIA,
    )
)


class _Queued(msgspec.Struct, frozen=True):
    turn_id: str
    sequence: int
    status: str
    queue_state: str = "open"
    enqueue_sequence: int = 0


@post(paths("/runs"), status_code=200)
async def create_run(
    request: HttpRequest, finder: Find, component_id: FromPath[str], key: IdempotencyKey = None
) -> Response[Any]:
    """Accept a message as a run. It is committed before this answers, and goes on whatever becomes of the caller."""
    async with Posted(UploadLimits.of(finder.deps.settings.limits)) as posted:
        await posted.read(request)
        form = posted.form
        message = form.needed("message")
        wishes = Wishes.of(form)
        form.number("version")  # there are no versions; what is no number is refused as ever
        extra = form.rest(_DECLARED) | take_media(posted, form)
        component = await finder.component(request, component_id)
        command_key = finder.deps.ids.uuid7() if key is None else idempotency_key(key)
        name = form.text("session_id") or _session_for(finder, request, key)
        user = form.text("user_id")
        access = await open_session(finder, request, component, name, user)
        registration = access.registration
        if user is not None and finder.deps.authenticator.off:
            extra["user_id"] = user
        await _begun_with(finder, registration, extra)
        run_id = await _run_id(finder, access, form)
        about = metadata_of(form)
        command = SubmitTurn(
            session_id=registration.session_id,
            key=CommandKey(command_key),
            by=registration.user_id,
            trace=trace_of(request),
            turn_id=TurnId(finder.deps.ids.uuid7()),
            input=[TextPart(text=message), *posted.parts()],
            context_version=registration.context_version,
            external_id=run_id,
            metadata=_metadata(extra | ({"files_metadata": about} if about and posted.files else {})),
        )
        if may_begin(finder.deps, registration.owner):
            await keep(finder.deps, posted)
        begun = await _begin(finder, registration, command, posted, keyed=key is not None)
    reply = msgspec.json.decode(begun.reply, type=_Queued)
    turn = TurnFacts(
        turn_id=reply.turn_id,
        status="queued",
        first_sequence=reply.sequence,
        last_sequence=reply.sequence,
        external_id=run_id,
    )
    if run_id is None:
        await finder.names.take(registration.owner, turn.run_id, registration.session_id)
    await open_queue(finder, registration.session_id, registration.user_id, reply.queue_state)
    reader = finder.reader(component, registration, turn)
    loaded = await reader.load()
    return await answer(finder, access, reader, loaded, wishes, bare_end=True)


def _metadata(extra: dict[str, Any]) -> dict[str, Any] | None:
    return {"agentos": extra} if extra else None


async def _begin(
    finder: Finder, registration: Registration, command: SubmitTurn, posted: Posted, *, keyed: bool
) -> CommandAnswer:
    try:
        try:
            return await begin(finder.deps, registration.owner, command, keyed=keyed)
        except AttachmentMissing:
            # Another session that had the same file was erased in this moment.
            await keep(finder.deps, posted)
            return await begin(finder.deps, registration.owner, command, keyed=keyed)
    except TurnIdTaken as error:
        raise Refused(409, f"Run {command.external_id} already exists") from error
    except IdempotencyMismatch as error:
        raise Refused(409, "Idempotency-Key was already used by a different request") from error


def _session_for(finder: Finder, request: HttpRequest, key: str | None) -> str:
    """A request that names no session begins one; the repeat of its key finds that again."""
    if key is None:
        return finder.deps.ids.uuid7()
    owner = finder.deps.authenticator.owner(request)
    return name_for_key(f"{owner.user_id}\x00{owner.workspace_id}", idempotency_key(key))


async def _begun_with(finder: Finder, registration: Registration, extra: dict[str, Any]) -> None:
    """The state that the session was created with is what its first run begins with."""
    state = session_metadata(registration).get("session_state")
    if state is None or "session_state" in extra:
        return
    head = (await finder.deps.agent.heads([registration.session_id])).heads.get(registration.session_id)
    if head is not None and head.last_sequence <= 1:
        extra["session_state"] = state


async def _run_id(finder: Finder, access: Access, form: Form) -> str | None:
    """The name that the caller gives the run: theirs for one run, for ever."""
    name = form.text("run_id")
    if name is None:
        return None
    fault = external_id_fault(name)
    if fault is not None:
        raise Refused(
            422, [{"type": "value_error", "loc": ["body", "run_id"], "msg": f"run_id {fault}", "input": None}]
        )
    registration = access.registration
    if await finder.names.take(registration.owner, name, registration.session_id) != registration.session_id:
        raise Refused(409, f"Run {name} already exists")
    return name
