"""`turnlog audit`, `export` and `replay` on a real database, as somebody types them."""

import asyncio
import hashlib
from pathlib import Path
from typing import Any

import asyncpg
import msgspec
import pytest

from domain.parts import FilePart
from services.cli.main import run
from tests.support.databases import Database
from tests.support.planted import Copy, copies, put
from tests.support.story import story
from tests.support.written import WrittenSession

WHOLE = story()
IDS = [copy.session_id for copy in copies(WHOLE, 6)]


@pytest.fixture
async def superuser(database: Database, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """A connection past all triggers, to a database with six sessions that the commands will read."""
    connection = await asyncpg.connect(database.dsn)
    await put(connection, copies(WHOLE, 6))
    await connection.execute("SET session_replication_role = replica")
    monkeypatch.setenv("TURNLOG_POSTGRES_PROJECTOR", await database.dsn_of("turnlog_projector"))
    monkeypatch.chdir(tmp_path)
    yield connection
    await connection.close()


async def typed(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = await asyncio.to_thread(run, list(words))
    out, err = capsys.readouterr()
    return code, out, err


async def test_audit_says_clean_and_what_is_wrong(superuser: Any, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = await typed(capsys, "audit")
    assert (code, out) == (0, f"6 sessions, {6 * len(WHOLE.events)} events: clean\n")
    await superuser.execute("UPDATE turns SET output = 'x' WHERE session_id = $1 AND enqueue_sequence = 4", IDS[2])
    code, out, _ = await typed(capsys, "audit")
    assert code == 1
    assert f"{IDS[2]}     32  turns: turn " in out
    assert "6 sessions" in out
    code, out, _ = await typed(capsys, "audit", "--json")
    found = msgspec.json.decode(out)["findings"]
    assert (code, [(f["session_id"], f["sequence"], f["rule"]) for f in found]) == (1, [(IDS[2], 32, "turns")])
    assert (await typed(capsys, "audit", "--session", IDS[1]))[0] == 0
    assert (await typed(capsys, "audit", "--session", IDS[2]))[0] == 1


async def test_damaged_and_missing_attachments_are_found_and_nothing_else(
    superuser: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    written, contents = WrittenSession(9), [b"one" * 100, b"two" * 100, b"three" * 100]
    names = [hashlib.sha256(content).hexdigest() for content in contents]
    written.create()
    for name in names:
        written.submit(also=[FilePart(name, media_type="text/plain", name="a.txt", bytes=300)])
    whole = Copy(written.session_id, written.events, written.stored(), written.head())
    for name, content in zip(names, contents, strict=True):
        digest = bytes.fromhex(name)
        await superuser.execute("INSERT INTO blobs VALUES ($1, 'text/plain', $2, now())", digest, len(content))
        for chunk, piece in enumerate((content[:200], content[200:])):
            await superuser.execute("INSERT INTO blob_chunks VALUES ($1, $2, $3)", digest, chunk, piece)
    await put(superuser, [whole])
    # Put there without triggers, so that nothing has noted what these events name.
    code, out, _ = await typed(capsys, "audit")
    assert (code, out.count("is not noted as named")) == (1, 3)
    await superuser.execute("INSERT INTO blob_references SELECT $1::text::uuid, sha256 FROM blobs", written.session_id)
    assert (await typed(capsys, "audit"))[0] == 0

    async def found() -> list[tuple[str, int, str, bool]]:
        code, out, _ = await typed(capsys, "audit", "--json")
        assert code == 1
        findings = msgspec.json.decode(out)["findings"]
        return [(f["session_id"], f["sequence"], f["rule"], names[1] in f["detail"]) for f in findings]

    second = bytes.fromhex(names[1])
    await superuser.execute(
        "UPDATE blob_chunks SET content = set_byte(content, 7, 0) WHERE sha256 = $1 AND chunk = 1", second
    )
    assert await found() == [("", 0, "blobs", True)]
    await superuser.execute("DELETE FROM blob_chunks WHERE sha256 = $1 AND chunk = 1", second)
    assert await found() == [("", 0, "blobs", True)]
    await superuser.execute("UPDATE blob_chunks SET content = $2 WHERE sha256 = $1", second, contents[1])
    await superuser.execute("DELETE FROM blob_references WHERE sha256 = $1", second)
    assert await found() == [(written.session_id, 3, "blobs", False)]
    await superuser.execute("DELETE FROM blobs WHERE sha256 = $1", second)
    assert await found() == [(written.session_id, 3, "blobs", False)]


async def test_audit_by_several_processes_finds_the_same(
    superuser: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.cli.auditing.EVENTS_A_RANGE", 2 * len(WHOLE.events))
    await superuser.execute("DELETE FROM messages WHERE session_id = $1 AND enqueue_sequence = 7", IDS[0])
    await superuser.execute("UPDATE sessions SET fence = 1 WHERE session_id = $1", IDS[5])
    code, out, _ = await typed(capsys, "audit", "--parallel", "2", "--json")
    found = msgspec.json.decode(out)
    assert (code, found["sessions"], found["events"]) == (1, 6, 6 * len(WHOLE.events))
    assert sorted((f["session_id"], f["rule"]) for f in found["findings"]) == [(IDS[0], "messages"), (IDS[5], "head")]


async def test_an_export_is_checked_without_a_database(
    superuser: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await typed(capsys, "export", IDS[3], "--output", "exported"))[0] == 0
    monkeypatch.delenv("TURNLOG_POSTGRES_PROJECTOR")
    code, out, _ = await typed(capsys, "audit", "--file", "exported")
    assert (code, out) == (0, f"1 sessions, {len(WHOLE.events)} events: clean\n")
    Path("exported").write_bytes(Path("exported").read_bytes().replace(b"about it", b"about me"))
    code, out, _ = await typed(capsys, "audit", "--file", "exported")
    assert code == 1
    assert "payload_digest" in out
    assert (await typed(capsys, "audit", "--file", "nowhere"))[0] == 2
    assert (await typed(capsys, "audit"))[0] == 2


async def test_an_anchor_finds_a_cut_tail_and_a_rewritten_chain(
    superuser: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    anchor = ("audit", "--anchor", "heads", "--key", "key")
    code, _, err = await typed(capsys, *anchor)
    assert (code, err) == (0, "turnlog: signed 6 heads\n")
    assert (await typed(capsys, "export", IDS[4], "--output", "exported"))[0] == 0
    # What a thief with all rights would do: the last session goes, with everything that tells of it.
    for table in ("events", "sessions", "turns", "messages", "command_log"):
        await superuser.execute(f"DELETE FROM {table} WHERE session_id = $1", IDS[5])  # noqa: S608
    assert (await typed(capsys, "audit"))[0] == 0
    code, out, _ = await typed(capsys, *anchor, "--json")
    found = msgspec.json.decode(out)["findings"]
    assert (code, [(f["session_id"], f["sequence"], f["rule"]) for f in found]) == (
        1,
        [(IDS[5], len(WHOLE.events), "anchor")],
    )
    # The file is not signed anew over a finding, and finds it again.
    assert (await typed(capsys, *anchor))[0] == 1
    lines = Path("exported").read_bytes().splitlines(keepends=True)
    Path("exported").write_bytes(b"".join(lines[:-1]))
    code, _, err = await typed(capsys, "audit", "--file", "exported")
    assert (code, "no --anchor: whether later events were cut off" in err) == (0, True)
    code, out, _ = await typed(capsys, "audit", "--file", "exported", "--anchor", "heads", "--key", "key")
    assert (code, "anchor: a head was signed here" in out) == (1, True)
    Path("heads").write_bytes(Path("heads").read_bytes().replace(b'"sequence":41', b'"sequence":40'))
    code, out, _ = await typed(capsys, *anchor)
    assert (code, "was changed after it was signed" in out) == (1, True)


async def test_replay_shows_deltas_in_their_place(superuser: Any, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = await typed(capsys, "replay", IDS[0], "--json")
    frames = [msgspec.json.decode(line) for line in out.splitlines()]
    assert code == 0
    assert [f["sequence"] for f in frames if "sequence" in f] == list(range(1, len(WHOLE.events) + 1))
    texts: dict[str, str] = {}
    for frame in frames:
        data = frame["data"]
        if frame["type"] == "item.delta":
            texts[data["item_id"]] = texts.get(data["item_id"], "") + data["text"]
        elif frame["type"] == "item.completed" and data["kind"] != "tool_call":
            assert texts.pop(data["item_id"]) == data["text"]
    assert texts == {}
    code, out, _ = await typed(capsys, "replay", IDS[0])
    assert code == 0
    assert out.startswith(
        "you> first ä\nyou> second\nyou> third\nyou> fourth\nthinking about it\n* lookup {'q': 1}\n= out\n"
    )
    assert out.endswith("still at it\n")
    code, out, _ = await typed(capsys, "replay", IDS[0], "--until", "3", "--json")
    assert len(out.splitlines()) == 3


@pytest.mark.parametrize(
    "words",
    [("replay", "nobody"), ("export", "nobody"), ("replay", IDS[0], "--speed", "fast"), ("audit", "--session", "x")],
)
async def test_what_makes_no_sense_is_refused_in_one_line(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = await typed(capsys, *words)
    assert (code, err.count("\n")) == (2, 1)


async def test_an_unknown_session_is_said_to_be_none(superuser: Any, capsys: pytest.CaptureFixture[str]) -> None:
    nobody = "0198c0de-0000-7000-8000-00000000dead"
    for words in (("audit", "--session", nobody), ("export", nobody), ("replay", nobody)):
        code, _, err = await typed(capsys, *words)
        assert (code, err) == (2, f"turnlog: there is no session {nobody}\n")


async def test_a_database_that_cannot_be_read_is_one_line(
    superuser: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    await superuser.execute("DROP TABLE blob_chunks, blob_references, blobs, command_log")
    code, _, err = await typed(capsys, "audit")
    assert (code, err.count("\n"), 'relation "command_log" does not exist' in err) == (2, 1, True)
    monkeypatch.setenv("TURNLOG_POSTGRES_PROJECTOR", "postgresql://nobody:x@127.0.0.1:1/none")
    code, _, err = await typed(capsys, "export", IDS[0])
    assert (code, err.count("\n")) == (2, 1)
