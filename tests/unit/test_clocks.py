"""Whose clock counts: what is judged and stored goes by the store's, so hosts' wall clocks are asked in few places."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
WALL = {"now", "utcnow", "today", "time", "time_ns", "localtime", "gmtime", "ctime"}
JUDGES = (
    "domain",
    "infra/pipeline",
    "infra/postgres",
    "infra/memory",
    "projections",
    "services/agent",
    "services/worker",
)
ALLOWED = {
    "infra/memory/pipeline.py": "its clock is the store's",
    "infra/memory/clock.py": "the clock that tests set",
    "services/worker/demo.py": "a tool that tells the time",
    "services/worker/hooks/signing.py": "how old a signed call is, at whoever receives it",
    "services/worker/hooks/webhook.py": "when a call was signed, for its receiver",
    "services/worker/runtimes/agno/loop.py": "what Agno's own objects are dated with; nothing is judged by it",
}


def _asks(path: Path) -> Iterator[str]:
    """Calls that give a wall clock's time, as `x.now()`; a loop's `time()` is monotonic."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in WALL:
            text = ast.unparse(node.func)
            if "loop" not in text:
                yield f"{path.relative_to(ROOT)}:{node.lineno} {text}"


def test_no_wall_clock_of_a_host_is_asked_where_turns_are_judged_or_times_are_stored() -> None:
    files = [path for folder in JUDGES for path in sorted((ROOT / folder).rglob("*.py"))]
    assert len(files) > 50
    asked = {path: list(_asks(path)) for path in files}
    assert asked[ROOT / "infra/memory/pipeline.py"], "the search finds what there is"
    assert [line for path, lines in asked.items() if str(path.relative_to(ROOT)) not in ALLOWED for line in lines] == []
