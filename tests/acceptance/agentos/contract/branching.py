"""§8.1: checkpoints, continue_from, fork, regenerate."""

from typing import Any

from tests.acceptance.agentos.contract.story import Story

RUNS = "/agents/checked/runs"


async def tell(s: Story) -> None:
    message = '[tool: value {"name": "a"}] [again: value {"name": "b"}]'
    run = await s.post("two batches", RUNS, message=message, session_id="b", stream="false")
    path = f"{RUNS}/{run['run_id']}"
    listed = await s.get("checkpoints", f"{path}/checkpoints", session_id="b")
    s.fact("places", [(one["reason"], one["status"], one["is_latest"]) for one in listed["checkpoints"]])
    # Where the original counts a system message, ours does not.
    first = listed["checkpoints"][0]["message_index"]
    await s.get("snapshot", f"{path}/checkpoints/{first}", session_id="b")
    await s.get("snapshot no number", f"{path}/checkpoints/x", session_id="b")
    await s.get("snapshot out of range", f"{path}/checkpoints/99", session_id="b")
    await s.get("checkpoints without session", f"{path}/checkpoints")
    await s.get("checkpoints of no run", f"{RUNS}/nope/checkpoints", session_id="b")
    plain = await s.run("agents", "plain", "[say: x]", "b2")
    await s.get("checkpoints of a plain run", f"/agents/plain/runs/{plain['run_id']}/checkpoints", session_id="b2")
    await _cuts(s, f"{path}/continue", run, first)
    await _refusals(s, f"{path}/continue")


async def _cuts(s: Story, path: str, run: Any, first: int) -> None:
    async def cut(label: str, **form: Any) -> Any:
        made = await s.post(label, path, session_id="b", stream="false", **form)
        s.fact(f"{label}: it is another", (made["run_id"] != run["run_id"], made["status"]))
        return made

    forked = await cut("fork with input", continue_from=first, input="[say: new]")
    s.fact("where it was cut", forked.get("forked_from_message_index") == first)
    inside = await cut("fork inside a batch", continue_from=first + 1)
    s.fact("snapped down", inside.get("forked_from_message_index") == first)
    await cut("fork from the user's message", continue_from="last_user")
    await cut("fork", fork="true")
    await cut("instructions alone", additional_instructions="x")
    nothing = await s.caller.post(path, session_id="b", stream="false", continue_from=0)
    s.fact(
        "cut before everything", nothing.json().get("content"), "continue-zero", "Tool results: value of a | value of b"
    )
    await s.post("fork, stream", path, session_id="b", continue_from=first)
    kept = await cut("regenerate beside it", regenerate="true", replace_original="false")
    s.fact("where it comes from", kept.get("regenerated_from") == run["run_id"])
    status = (await s.caller.get(path.removesuffix("/continue"), session_id="b")).json()["status"]
    s.fact("the original stays", status)
    await cut("regenerate", regenerate="true")
    status = (await s.caller.get(path.removesuffix("/continue"), session_id="b")).json()["status"]
    s.fact("the original is replaced", status)


async def _refusals(s: Story, path: str) -> None:
    for label, further in (
        ("no place", {"continue_from": "zz"}),
        ("replace alone", {"replace_original": "true"}),
        ("regenerate from", {"regenerate": "true", "continue_from": "2"}),
        ("regenerate and fork", {"regenerate": "true", "fork": "true"}),
        ("two inputs", {"input": "a", "additional_instructions": "b", "regenerate": "true"}),
    ):
        await s.post(label, path, session_id="b", stream="false", **further)
    for label, place in (("beyond", 99), ("before", -1)):
        answer = await s.caller.post(path, session_id="b", stream="false", continue_from=place)
        s.fact(label, answer.status_code, "continue-range", 400)
