"""The worked example of docs/projections.md, as somebody uses it, and the commands for what was set aside."""

import asyncio
import re
import sys
from pathlib import Path

import asyncpg
import msgspec
import pytest

from infra.postgres.pool import create_pool
from services.cli.main import run
from services.projector.projections import all_projections
from tests.support.databases import Database
from tests.support.feeding import caught_up, running
from tests.support.stand import postgres_stand

DOCS = Path(__file__).parents[2] / "docs" / "projections.md"


@pytest.fixture
def greetings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The example as a module of the user's."""
    found = re.search(r"```python\n# greetings.py\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    module = tmp_path / "greetings.py"
    module.write_text(found[1], encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "greetings", raising=False)
    return module


async def typed(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    capsys.readouterr()  # what the runners logged
    code = await asyncio.to_thread(run, list(words))
    out, err = capsys.readouterr()
    return code, out, err


async def test_the_example_counts_and_what_it_cannot_take_is_parked_and_retried(
    database: Database, greetings: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TURNLOG_PROJECTOR_PROJECTIONS", "greetings:Greetings")
    monkeypatch.setenv("TURNLOG_POSTGRES_PROJECTOR", await database.dsn_of("turnlog_projector"))
    dsn = await database.dsn_of("turnlog_worker")
    pool, feeding = (
        await create_pool(dsn, size=2),
        await create_pool(await database.dsn_of("turnlog_projector"), size=3),
    )
    (own,) = [one for one in all_projections(["greetings:Greetings"]) if one.name == "greetings"]
    admin = await asyncpg.connect(database.dsn)
    async with postgres_stand(dsn, pool) as stand:
        session = await stand.create()
        for text in ("Hello!", "how are you", "hello again"):
            await stand.submit(session, text)
        async with running(feeding, own):
            await caught_up(feeding, "greetings")
            assert await admin.fetchval("SELECT sum(turns)::int FROM feed.greetings") == 2
            await admin.execute("ALTER TABLE feed.greetings ADD CONSTRAINT few CHECK (turns < 3)")
            await stand.submit(session, "hello once more")
            await stand.submit(session, "bye")
            await caught_up(feeding, "greetings")
    code, out, _ = await typed(capsys, "projections", "parked", "--json")
    (parked,) = msgspec.json.decode(out)
    assert (code, parked["name"], parked["session_id"], parked["sequence"]) == (1, "greetings", session, 5)
    assert parked["reason"].startswith("CheckViolationError: ")
    assert (await typed(capsys, "projections", "retry", "greetings"))[:2] == (
        1,
        "greetings: 0 applied, 1 still parked\n",
    )
    await admin.execute("ALTER TABLE feed.greetings DROP CONSTRAINT few")
    assert (await typed(capsys, "projections", "retry", "greetings"))[:2] == (
        0,
        "greetings: 1 applied, 0 still parked\n",
    )
    assert await admin.fetchval("SELECT sum(turns)::int FROM feed.greetings") == 3
    code, out, _ = await typed(capsys, "projections")
    assert (code, out) == (0, "greetings: version 1, idle, 0 events and 0.0 s behind, 0 parked\n")
    code, _, err = await typed(capsys, "projections", "retry", "nothing")
    assert (code, err.count("\n")) == (2, 1)
    await admin.close()
    await pool.close()
    await feeding.close()
