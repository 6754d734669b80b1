"""The gateway's way to the agent service: internal HTTP, several URLs, every call repeatable.

A reply that is unclear (connection lost, timeout, 5xx) is asked for again at the next URL with the same command, thus
the same key: the agent service answers a repeat with the first reply, so a retry never makes a second turn.
"""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Mapping
from collections.abc import Sequence as Many
from typing import Any, Literal

import aiohttp
import msgspec
import structlog
from prometheus_client import CollectorRegistry, Counter

from domain import errors
from domain.commands import ClientCommand
from infra.telemetry.traces import Traces
from services.tracing import begun, ended

log = structlog.get_logger("turnlog.gateway")

_encoder = msgspec.json.Encoder()

_FIRST_PAUSE = 0.02
_LONGEST_PAUSE = 0.5
# A URL that just failed is asked last for so long; it is still asked when no other answers.
_AVOID_SECONDS = 1.0
# A session of tens of thousands of events.
_COPY_SECONDS = 60.0
# A large attachment, behind others that are being stored.
_UPLOAD_SECONDS = 20.0


class CommandAnswer(msgspec.Struct, frozen=True):
    """`reply`: the JSON kept by the agent service; `replayed`: it was kept before this request came."""

    reply: bytes
    replayed: bool


class ReplayPage(msgspec.Struct, frozen=True):
    """Committed events first..last right after the cursor, as ready bytes; first = last = after when there are none.
    `head`, `closed`: of the session when read."""

    first: int
    last: int
    head: int
    closed: bool
    body: bytes


class SessionHead(msgspec.Struct, frozen=True):
    """Where a session stands."""

    last_sequence: int
    queue_state: str
    active_turn_id: str | None
    active_status: str | None
    queued: int
    chat_status: str
    closed: bool


class Heads(msgspec.Struct, frozen=True):
    """Sessions that do not exist are left out. `epoch`: the store's, raised by a restore."""

    epoch: int
    heads: dict[str, SessionHead]


class RunningTurn(msgspec.Struct, frozen=True):
    """`completed`, `answered`: those items that are in the log, and those calls whose final result is."""

    turn_id: str
    attempt: int
    completed: list[str]
    answered: list[str]


class _Refusal(msgspec.Struct, frozen=True):
    code: str
    fields: dict[str, Any] = {}


class _Answer(msgspec.Struct, frozen=True):
    headers: Mapping[str, str]
    body: bytes


class AgentClient:
    """Use as an async context manager. All methods raise the domain errors the agent service answered with, and
    AgentUnavailable when no URL gave a clear answer within `unavailable_seconds`."""

    def __init__(
        self,
        urls: Many[str],
        secret: str,
        *,
        request_seconds: float = 5.0,
        unavailable_seconds: float = 10.0,
        registry: CollectorRegistry | None = None,
        traces: Traces | None = None,
    ) -> None:
        """`urls`: where agent processes listen, or one name that stands for several. `request_seconds`: for one try."""
        if not urls:
            raise ValueError("no URL of the agent service")
        self._urls = [url.rstrip("/") for url in urls]
        self._avoided = dict.fromkeys(self._urls, 0.0)
        self._turn = random.randrange(len(self._urls))
        self._secret = secret
        self._request_seconds = request_seconds
        self._unavailable_seconds = unavailable_seconds
        self._traces = traces
        self._failures = Counter(
            "turnlog_agent_call_failures_total", "Unclear replies of the agent service", ["reason"], registry=registry
        )

    async def __aenter__(self) -> "AgentClient":
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=30.0, ttl_dns_cache=5),
            headers={"Authorization": f"Bearer {self._secret}"},
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def execute(self, command: ClientCommand) -> CommandAnswer:
        """Run a command; the answer is committed. Raises Rejection, Unavailable; after the latter the same command with
        the same key settles what happened."""
        if self._traces is None:
            return await self._execute(command)
        with ended(begun(self._traces, "submit", command)) as span:
            return await self._execute(msgspec.structs.replace(command, trace=span.traceparent))

    async def _execute(self, command: ClientCommand) -> CommandAnswer:
        answer = await self._call("POST", "/internal/commands", body=_encoder.encode(command))
        return CommandAnswer(answer.body, answer.headers.get("Turnlog-Replayed") == "true")

    async def page(
        self, session_id: str, after: int, form: Literal["sse", "json"] = "sse", limit: int | None = None
    ) -> ReplayPage:
        """A replay page: SSE blocks, or the items of a JSON array. `limit`: events at most. Raises SessionNotFound."""
        query = {"after": str(after), "form": form} | ({} if limit is None else {"limit": str(limit)})
        answer = await self._call("GET", f"/internal/sessions/{session_id}/events", query=query)
        head = answer.headers
        return ReplayPage(
            int(head["Turnlog-First"]),
            int(head["Turnlog-Last"]),
            int(head["Turnlog-Head"]),
            head["Turnlog-Closed"] == "1",
            answer.body,
        )

    async def heads(self, session_ids: Many[str]) -> Heads:
        """Stream heads of those sessions that exist, as committed when the request arrived."""
        answer = await self._call("POST", "/internal/heads", body=_encoder.encode({"session_ids": list(session_ids)}))
        return msgspec.json.decode(answer.body, type=Heads)

    async def open_items(self, session_id: str, item_ids: Many[str]) -> RunningTurn | None:
        """The running turn, and which of those items are in the log by now; None where no turn runs."""
        body = _encoder.encode({"item_ids": list(item_ids)})
        answer = await self._call("POST", f"/internal/sessions/{session_id}/open-items", body=body)
        return msgspec.json.decode(answer.body, type=RunningTurn | None)

    async def read(self, path: str, query: Mapping[str, str] | None = None, wait: float = 0.0) -> bytes:
        """Any other query below /internal: its JSON as it came. `wait`: seconds that the answer may take longer."""
        return (await self._call("GET", f"/internal{path}", query=query, wait=wait)).body

    async def search(self, body: bytes) -> bytes:
        """Texts: the agent service's answer to `POST /internal/search`."""
        return (await self._call("POST", "/internal/search", body=body)).body

    async def hook_runs(self, body: bytes) -> bytes:
        """Hooks and evaluations: the agent service's answer to `POST /internal/hooks`."""
        return (await self._call("POST", "/internal/hooks", body=body)).body

    async def copy_session(self, session_id: str, source: str, upto: int, name: str) -> None:
        """Fill a session that was just created with what another one's log said at `upto`, which its owner calls by
        that name. Raises NothingToCopy, SessionNotFound, Unavailable: then the same call goes on with it."""
        body = _encoder.encode({"source": source, "upto": upto, "name": name})
        await self._call("POST", f"/internal/sessions/{session_id}/copy", body=body, wait=_COPY_SECONDS)

    async def known_blobs(self, names: Many[str]) -> set[str]:
        """Those of these attachments that need not be sent."""
        body = _encoder.encode({"names": list(names)})
        return set(
            msgspec.json.decode((await self._call("POST", "/internal/blobs/known", body=body)).body, type=list[str])
        )

    async def keep_blob(self, name: str, media_type: str | None, content: Callable[[], AsyncIterator[bytes]]) -> None:
        """Hand an attachment in. `content` gives it from its beginning, again for each try. Raises AttachmentMissing
        where something else arrived."""
        query = {} if media_type is None else {"media_type": media_type}
        await self._call("PUT", f"/internal/blobs/{name}", query=query, body=content, wait=_UPLOAD_SECONDS)

    async def ready(self) -> None:
        """Raises AgentUnavailable unless some agent process answers from its store; one round, no retries."""
        for url in self._order():
            try:
                await self._try("POST", url, "/internal/heads", None, b'{"session_ids":[]}', 2.0)
            except (errors.TurnlogError, OSError, TimeoutError, aiohttp.ClientError):
                continue
            return
        raise errors.AgentUnavailable()

    async def _call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | Callable[[], AsyncIterator[bytes]] | None = None,
        wait: float = 0.0,
    ) -> _Answer:
        end = time.monotonic() + self._unavailable_seconds + wait
        pause = _FIRST_PAUSE
        locked: errors.LockTimeout | None = None
        last: errors.Unavailable
        while True:
            for url in self._order():
                left = end - time.monotonic()
                if left <= 0:
                    raise locked or errors.AgentUnavailable()
                try:
                    return await self._try(method, url, path, query, body, min(self._request_seconds + wait, left))
                except errors.LockTimeout as error:
                    # That session's lock, wherever it is asked for. It may have been committed all the same, so that
                    # the same key is a better judge than a caller who has none.
                    last = locked = error
                    break
                except (errors.StoreUnavailable, errors.VersionMismatch) as error:
                    last = error
                except (OSError, TimeoutError, aiohttp.ClientError) as error:
                    last = locked or errors.AgentUnavailable()
                    self._failures.labels(type(error).__name__).inc()
                self._avoided[url] = time.monotonic() + _AVOID_SECONDS
            if time.monotonic() + pause >= end:
                raise last
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(pause * 2, _LONGEST_PAUSE)

    async def _try(
        self,
        method: str,
        url: str,
        path: str,
        query: Mapping[str, str] | None,
        body: bytes | Callable[[], AsyncIterator[bytes]] | None,
        seconds: float,
    ) -> _Answer:
        timeout = aiohttp.ClientTimeout(total=seconds, sock_connect=min(1.0, seconds))
        headers = {"Content-Type": "application/json"} if isinstance(body, bytes) else {}
        async with self._session.request(
            method,
            url + path,
            params=query,
            data=body() if callable(body) else body,
            headers=headers,
            timeout=timeout,
            allow_redirects=False,
        ) as response:
            content = await response.read()
            if response.status == 200:
                return _Answer(response.headers, content)
            raise _refusal(response.status, content)

    def _order(self) -> list[str]:
        """All URLs, each in turn the first; those that failed just now at the end."""
        self._turn = (self._turn + 1) % len(self._urls)
        rotated = self._urls[self._turn :] + self._urls[: self._turn]
        now = time.monotonic()
        return sorted(rotated, key=lambda url: self._avoided[url] > now)


class UnclearReply(aiohttp.ClientError):
    """A status the agent service does not give on purpose: a bug in it, a proxy's answer, a wrong secret or URL."""


def _refusal(status: int, content: bytes) -> Exception:
    try:
        refusal = msgspec.json.decode(content, type=_Refusal)
        return errors.BY_CODE[refusal.code](**refusal.fields)
    except (msgspec.MsgspecError, KeyError):
        log.warning("agent_service_unclear", status=status)
        return UnclearReply(str(status))
