"""Files that come with a message: kept once, before the turn that names them; too much is refused as it arrives."""

import asyncio
import base64
import hashlib
import json
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import httpx2
import pytest

from domain.commands import EraseSession
from domain.ids import CommandKey, SessionId
from infra.postgres.blobs import PostgresBlobs
from infra.postgres.pool import create_pool
from services.gateway.dialects.agentos.posted import UploadLimits
from tests.support.databases import Databases
from tests.support.gateways import AGENT, HttpStand, http_stand, user_token

RUNS = f"/agentos/agents/{AGENT}/runs"
LIMITS = {"attachment_bytes": 600_000, "attachments": 4, "attachments_bytes": 1_000_000, "input_bytes": 20_000}
BIG = bytes(range(256)) * 2200  # more than a chunk, and more than what stays in memory


@pytest.fixture
async def stand(databases: Databases) -> AsyncIterator[HttpStand]:
    async with http_stand(databases, gateways=2, limits=LIMITS) as made:
        yield made


@pytest.fixture
async def admin(stand: HttpStand) -> AsyncIterator[Any]:
    dsn = stand.settings.postgres.agent
    assert dsn is not None
    connection = await asyncpg.connect(dsn.get_secret_value())
    yield connection
    await connection.close()


async def post(
    stand: HttpStand, files: list[Any] | None = None, gateway: int = 0, key: str | None = None, **form: str
) -> httpx2.Response:
    """A run in the background: answered when it is queued."""
    data = {"message": "look", "session_id": "s", "background": "true", "stream": "false", **form}
    headers = {} if key is None else {"Idempotency-Key": key}
    client = stand.client(gateway).http
    return await client.post(RUNS, data=data, files=[("files", one) for one in files or []] or None, headers=headers)


async def inputs(stand: HttpStand, name: str = "s") -> list[Any]:
    """Of the session's turns, oldest first."""
    page = await stand.client().json("GET", f"/v1/sessions/{name}/turns")
    return [turn["input"] for turn in reversed(page["items"])]


def part(name: str, media_type: str, content: bytes) -> dict[str, Any]:
    digest = hashlib.sha256(content).hexdigest()
    return {"type": "file", "blob": digest, "media_type": media_type, "name": name, "bytes": len(content)}


async def test_files_are_parts_of_the_input_and_equal_ones_are_kept_once(stand: HttpStand, admin: Any) -> None:
    two = [("C:\\notes\\a.md", b"# a", "application/octet-stream"), ("pic.png", BIG, "image/png")]
    answer = await post(stand, two, files_metadata='[{"page": 1}]')
    assert answer.status_code == 202, answer.text
    assert (await post(stand, [("other.png", BIG, "image/png")], gateway=1)).status_code == 202
    first, second = await inputs(stand)
    text = {"type": "text", "text": "look"}
    assert first == [text, part("a.md", "text/markdown", b"# a"), part("pic.png", "image/png", BIG)]
    assert second == [text, part("other.png", "image/png", BIG)]
    assert await admin.fetchval("SELECT count(*) FROM blobs") == 2
    pool = await create_pool(stand.settings.dsn("worker"), size=1)
    blobs = PostgresBlobs(pool)
    assert await blobs.get(part("", "", BIG)["blob"]) == BIG
    assert await blobs.get("00" * 32) is None
    await pool.close()
    (queued, *_) = [e for e in await stand.client().events("s") if e["type"] == "turn.queued"]
    assert queued["data"]["metadata"] == {"agentos": {"files_metadata": [{"page": 1}]}}


async def test_what_agnos_client_sends_in_base64_is_kept_alike(stand: HttpStand) -> None:
    image = {"content": base64.b64encode(BIG).decode(), "format": "png", "id": "x"}
    link = {"url": "https://example.org/a.png", "mime_type": "image/png"}
    document = {"content": base64.b64encode(b"{}").decode(), "filename": "a.json", "mime_type": "application/json"}
    text = {"content": "TestData", "filename": "a.txt", "mime_type": "text/plain"}
    answer = await post(stand, images=json.dumps([image, link]), input_files=json.dumps([document, text]))
    assert answer.status_code == 202, answer.text
    assert (await inputs(stand))[0][1:] == [
        part("images.png", "image/png", BIG),
        part("a.json", "application/json", b"{}"),
        part("a.txt", "text/plain", b"TestData"),
    ]
    (queued,) = [e for e in await stand.client().events("s") if e["type"] == "turn.queued"]
    assert queued["data"]["metadata"] == {"agentos": {"images": [link]}}
    for wrong in ("x", '[{"filepath": "/etc/passwd"}]', '[{"content": "%%"}]'):
        assert (await post(stand, images=wrong)).status_code == 422


async def test_the_file_is_part_of_what_a_key_stands_for(stand: HttpStand) -> None:
    answers = [await post(stand, [("a.txt", content, "text/plain")], key="k") for content in (b"one", b"one", b"two")]
    assert [answer.status_code for answer in answers] == [202, 202, 409]
    assert answers[0].json() == answers[1].json()
    assert len(await inputs(stand)) == 1


REFUSED: list[tuple[list[Any], int, str]] = [
    ([("a.exe", b"x", "application/x-msdownload")], 400, "Unsupported file type"),
    ([("a", b"x", "application/octet-stream")], 400, "Unsupported file type"),
    ([("a.txt", b"", "text/plain")], 400, "Empty file"),
    ([("a.txt", b"x" * 600_001, "text/plain")], 413, "A file has more than 600000 bytes"),
    ([("a.txt", b"x" * 400_000, "text/plain")] * 3, 413, "The files have more than 1000000 bytes together"),
    ([("a.txt", b"x", "text/plain")] * 5, 413, "At most 4 files"),
]


async def test_who_may_begin_nothing_stores_nothing(databases: Databases) -> None:
    gateway = {"starts_per_minute": 1}
    async with http_stand(databases, gateway=gateway, limits=LIMITS) as limited:
        assert (await post(limited, [("a.txt", b"one", "text/plain")], key="k")).status_code == 202
        assert (await post(limited, [("a.txt", b"two", "text/plain")])).status_code == 429
        again = await post(limited, [("a.txt", b"one", "text/plain")], key="k")
        assert again.status_code == 202
        connection = await asyncpg.connect(limited.settings.dsn("agent"))
        assert await connection.fetchval("SELECT count(*) FROM blobs") == 1
        await connection.close()


async def test_what_is_refused(stand: HttpStand, admin: Any) -> None:
    for files, status, says in REFUSED:
        answer = await post(stand, files)
        assert (answer.status_code, answer.json()) == (status, {"detail": says})
    assert await admin.fetchval("SELECT count(*) FROM blobs") == 0


async def test_a_body_over_the_limit_is_refused_while_it_arrives(stand: HttpStand) -> None:
    """The sender says that it will send for ever, and has its answer when the limit is passed."""
    sent = 0
    host, port = stand.gateways[0].removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    head = (
        f"POST {RUNS} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {user_token()}\r\n"
        "Transfer-Encoding: chunked\r\nContent-Type: multipart/form-data; boundary=b\r\n\r\n"
    )
    first = b'--b\r\nContent-Disposition: form-data; name="files"; filename="a.txt"\r\n\r\n'
    writer.write(head.encode() + b"%x\r\n%b\r\n" % (len(first), first))
    answered = asyncio.create_task(reader.readline())
    piece = b"%x\r\n%b\r\n" % (50_000, b"x" * 50_000)
    while not answered.done():
        writer.write(piece)
        await writer.drain()
        sent += 50_000
        assert sent < 50_000_000
        await asyncio.sleep(0)
    assert b" 413 " in await answered
    writer.close()
    # One that says beforehand how much it will be has its answer before it sends anything.
    reader, writer = await asyncio.open_connection(host, int(port))
    most = UploadLimits.of(stand.settings.limits).body
    writer.write(head.replace("Transfer-Encoding: chunked", f"Content-Length: {most + 1}").encode())
    assert b" 413 " in await reader.readline()
    writer.close()
    other = f"/agentos/agents/{AGENT}/runs/x/cancel"
    assert (await stand.client().http.post(other, data={"x": "y" * 200_000})).status_code == 413


async def test_nobody_names_what_is_not_there_and_what_nobody_names_goes(stand: HttpStand, admin: Any) -> None:
    assert (await post(stand, [("a.txt", b"kept", "text/plain")])).status_code == 202
    pool = await create_pool(stand.settings.dsn("agent"), size=2)
    blobs = PostgresBlobs(pool)
    orphan = await blobs.keep(b"of nobody", "text/plain")
    assert await blobs.known([orphan, "00" * 32]) == {orphan}
    assert await blobs.collect(60.0) == 0
    assert await blobs.collect(0.0) == 1
    assert await blobs.known([orphan, part("", "", b"kept")["blob"]]) == {part("", "", b"kept")["blob"]}
    await pool.close()
    session = SessionId((await stand.client().json("GET", "/v1/sessions/s"))["session_id"])
    refused = await stand.client().json("GET", f"/v1/sessions/{session}/turns")
    assert len(refused["items"]) == 1


async def test_a_file_goes_with_the_last_session_that_names_it(stand: HttpStand, admin: Any) -> None:
    sessions = []
    for name in ("s", "t"):
        assert (await post(stand, [("a.txt", b"shared", "text/plain")], session_id=name)).status_code == 202
        sessions.append(SessionId((await stand.client().json("GET", f"/v1/sessions/{name}"))["session_id"]))
        await stand.finish(await stand.claim(sessions[-1]))
    for session, left in zip(sessions, (1, 0), strict=True):
        await stand.pipeline.execute(EraseSession(session_id=session, key=CommandKey("erase"), by="ann"))
        assert await admin.fetchval("SELECT count(*) FROM blobs") == left
        assert await admin.fetchval("SELECT count(*) FROM blob_references") == left
    # The same file again, after it was gone.
    assert (await post(stand, [("a.txt", b"shared", "text/plain")], session_id="u")).status_code == 202
    assert await admin.fetchval("SELECT count(*) FROM blobs") == 1


async def test_an_erase_beside_uploads_of_the_same_file_takes_it_from_nobody(stand: HttpStand, admin: Any) -> None:
    """Whoever comes first: every accepted turn has its file, and no turn is refused for another session's erase."""
    for number in range(8):
        content = b"round %d" % number
        first = f"first{number}"
        assert (await post(stand, [("a.txt", content, "text/plain")], session_id=first)).status_code == 202
        session = SessionId((await stand.client().json("GET", f"/v1/sessions/{first}"))["session_id"])
        await stand.finish(await stand.claim(session))
        erase = EraseSession(session_id=session, key=CommandKey("erase"), by="ann")
        erasing = asyncio.create_task(stand.pipeline.execute(erase))
        answers = await asyncio.gather(
            *(
                post(stand, [("a.txt", content, "text/plain")], gateway=n % 2, session_id=f"other{number}{n}")
                for n in range(3)
            )
        )
        await erasing
        assert [answer.status_code for answer in answers] == [202] * 3, [answer.text for answer in answers]
        name = bytes.fromhex(part("", "", content)["blob"])
        assert await admin.fetchval("SELECT count(*) FROM blob_references WHERE sha256 = $1", name) == 3
        assert await admin.fetchval("SELECT count(*) FROM blob_chunks WHERE sha256 = $1", name) == 1
