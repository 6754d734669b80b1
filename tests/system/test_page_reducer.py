"""The page's reducer in a real JavaScript engine: any stream, cut anywhere, folds to the same."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.system

REDUCER = Path(__file__).parents[2] / "services" / "gateway" / "page" / "reducer.js"

_RUN = """
import { apply, emptyState, TYPES } from "./reducer.mjs";
import { readFileSync } from "node:fs";
const streams = JSON.parse(readFileSync(0, "utf8"));
const folded = streams.map((frames) => {
  const state = emptyState();
  for (const [type, message] of frames) {
    if (!TYPES.includes(type)) throw new Error(`the page does not listen to ${type}`);
    apply(state, type, message);
  }
  return { ...state, turns: [...state.turns.values()].map((turn) => ({ ...turn, items: [...turn.items.values()] })) };
});
console.log(JSON.stringify(folded));
"""

Frame = tuple[str, dict[str, Any]]


def event(sequence: int, type_: str, turn: str | None = "t", **data: Any) -> Frame:
    return type_, {"sequence": sequence, "turn_id": turn, "data": data}


def live(type_: str, turn: str = "t", **data: Any) -> Frame:
    return type_, {"turn_id": turn, "data": data}


TEXT: dict[str, Any] = {"item_id": "i", "kind": "text", "attempt": 1}
STREAM: list[Frame] = [
    event(1, "session.created", None, agent_id="a", component="agent"),
    event(2, "turn.queued", input=[{"type": "text", "text": "hi"}], enqueue_sequence=1),
    event(3, "turn.started", attempt=1, reason="first", frame_base=0),
    live("item.started", **TEXT),
    live("item.delta", item_id="i", index=0, text="Hel", attempt=1),
    live("item.delta", item_id="i", index=1, text="lo", attempt=1),
    event(4, "item.completed", **TEXT, text="Hello"),
    event(5, "item.completed", item_id="c", kind="tool_call", attempt=1, tool_call={"name": "add", "arguments": {}}),
    event(6, "tool.started", tool_call_id="x", item_id="c", attempt=1),
    event(7, "tool_result.snapshot", tool_call_id="x", item_id="c", output="3", final=True, attempt=1),
    event(8, "turn.completed", output="Hello", attempt=1),
]


@pytest.fixture
def folded(tmp_path: Path) -> Any:
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    shutil.copy(REDUCER, tmp_path / "reducer.mjs")
    (tmp_path / "run.mjs").write_text(_RUN)

    def fold(*streams: list[Frame]) -> list[dict[str, Any]]:
        done = subprocess.run(
            ["node", str(tmp_path / "run.mjs")], input=json.dumps(streams), capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        found: list[dict[str, Any]] = json.loads(done.stdout)
        return found

    return fold


def test_a_whole_stream(folded: Any) -> None:
    (state,) = folded(STREAM)
    (turn,) = state["turns"]
    assert (turn["status"], turn["input"], state["last"]) == ("completed", "hi", 8)
    text, call = turn["items"]
    assert (text["text"], text["open"]) == ("Hello", False)
    assert call["output"] == {"text": "3", "final": True, "error": False, "truncated": False}


def test_cut_after_each_frame_and_resumed_it_is_the_same(folded: Any) -> None:
    streams = [STREAM]
    for cut in range(len(STREAM) + 1):
        seen = max((message["sequence"] for _, message in STREAM[:cut] if "sequence" in message), default=0)
        again = [frame for frame in STREAM if frame[1].get("sequence", 0) > seen]
        streams += [[*STREAM[:cut], *again], [*STREAM[:cut], *STREAM]]
    whole, *others = folded(*streams)
    for number, other in enumerate(others):
        assert other == whole, f"cut after {number // 2}, then {'the rest' if number % 2 == 0 else 'everything again'}"


def test_a_dead_attempt_leaves_nothing_open(folded: Any) -> None:
    dead = [*STREAM[:5], event(4, "turn.started", attempt=2, reason="worker_lost", frame_base=2**32)]
    late = [live("item.delta", item_id="i", index=1, text="ghost", attempt=1)]
    assert folded([*dead, *late])[0]["turns"][0]["items"] == []


def test_a_delta_out_of_place_is_dropped(folded: Any) -> None:
    frames = [*STREAM[:4], live("item.delta", item_id="i", index=1, text="lo", attempt=1)]
    assert folded(frames)[0]["turns"][0]["items"][0]["text"] == ""
