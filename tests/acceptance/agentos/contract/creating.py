"""§3: create a run, and what is refused."""

import json
from typing import Any

from tests.acceptance.agentos.contract.story import Story

RUNS = "/agents/plain/runs"


async def tell(s: Story) -> None:
    await s.together(_four_ways, _gone, _refused, _uploads, _further_fields, _failures, _users_and_names)


async def _refused(s: Story) -> None:
    tools = '[tool: value {"name": "a"}] [tool: broken {"name": "b"}]'
    await s.post("tools", "/agents/tooled/runs", message=tools, session_id="tools")
    await s.post("tools, inline", "/agents/tooled/runs", message=tools, session_id="tools", stream="false")
    await s.send("a JSON body", "POST", RUNS, {"message": "x"})
    await s.post("empty message", RUNS, message="")
    await s.post("no boolean", RUNS, message="x", stream="maybe")
    for kind in ("agents", "teams", "workflows"):
        await s.post(f"unknown, {kind}", f"/{kind}/nope/runs", message="x")
        await s.send(f"wrong verb, {kind}", "PUT", f"/{kind}/plain/runs")
    await s.post("content only", RUNS, message="[say: x y]", session_id="few", stream_events="false")
    await s.post(
        "no database", "/agents/dbless/runs", "no-db", 202, message="[say: x]", background="true", stream="false"
    )


async def _four_ways(s: Story) -> None:
    await s.post("inline stream", RUNS, message="[say: hello there]", session_id="s")
    await s.post("inline", RUNS, message="[say: hello]", session_id="s", stream="false")
    await s.post("background stream", RUNS, message="[say: hello]", session_id="s", background="true")
    await s.post("background", RUNS, message="[say: hi]", session_id="s", background="true", stream="false")
    without = await s.post("without a session", RUNS, message="[say: hi]", stream="false")
    s.fact("a session is made", isinstance(without["session_id"], str))
    async with s.caller.http.stream("POST", RUNS, data={"message": "[say: x]", "session_id": "head"}) as answer:
        kept = "x-accel-buffering" in answer.headers or "cache-control" in answer.headers
        s.fact("proxies are told to let the stream through", kept, "stream-comments", True)
        lines = (await answer.aread()).decode().splitlines()
        s.fact("lines that begin with id", sum(line.startswith("id:") for line in lines) > 0, "inline-index", True)


async def _gone(s: Story) -> None:
    form = {"message": "[gap=0.02] [words=30]", "session_id": "gone"}
    frames = await s.caller.stream(RUNS, 2, **form)
    run = json.loads(frames[0].data)["run_id"]
    found = await s.ended(f"{RUNS}/{run}", "gone")
    s.fact("the client of an inline stream is gone", found["status"], "inline-gone", "COMPLETED")


async def _uploads(s: Story) -> None:
    form: dict[str, Any] = {"message": "[say: read]", "stream": "false", "session_id": "files"}
    for label, name, kind in (
        ("a document", "a.txt", "text/plain"),
        ("a picture", "a.png", "image/png"),
        ("no known type", "a.bin", "application/x-unheard-of"),
    ):
        answer = await s.caller.http.post(RUNS, data=form, files={"files": (name, b"what it says", kind)})
        s.look(f"upload, {label}", answer)
    answer = await s.caller.http.post(RUNS, data=form, files={"files": ("a.txt", b"", "text/plain")})
    s.look("upload, empty", answer, "files-empty", (400, "Empty file"))
    picture = json.dumps([{"content": "aGVsbG8=", "mime_type": "image/png", "format": "png", "id": "p"}])
    await s.post("upload, in base64", RUNS, images=picture, **form)
    path = await s.caller.post(RUNS, images='[{"filepath": "/nowhere/a.png"}]', **form)
    s.fact("a path of the server's", path.status_code, "files-path", 422)


async def _further_fields(s: Story) -> None:
    said: dict[str, Any] = {"message": "[say: x]", "stream": "false"}
    more: dict[str, Any] = {
        "session_state": '{"a": 1}',
        "dependencies": '{"b": 2}',
        "metadata": '{"c": 3}',
        "bogus": "1",
    }
    run = await s.post("further fields", RUNS, session_id="more", **said, **more)
    s.fact("metadata comes back", run.get("metadata"))
    s.fact("so does the state", run.get("session_state"))
    await s.post("bad JSON that is dropped", RUNS, session_id="more2", **said, session_state="{", dependencies="{")
    await s.post("metadata no object", RUNS, message="x", stream="false", metadata="[1]")
    for name in ("images", "audio", "videos", "input_files", "output_schema"):
        await s.post(f"{name} no JSON", RUNS, message="x", stream="false", **{name: "x"})


async def _failures(s: Story) -> None:
    await s.post("model fails", RUNS, message="[http=500]", session_id="e")
    failed = await s.post("model fails, inline", RUNS, message="[http=500]", session_id="e", stream="false")
    s.fact("its status", failed["status"])
    guarded = "/agents/guarded/runs"
    await s.post("guardrail", guarded, message="forbidden", session_id="g")
    await s.post("guardrail, inline", guarded, message="forbidden", session_id="g", stream="false")
    late = await s.run("agents", "guarded", "forbidden", "g", background="true")
    await s.ended(f"{guarded}/{late['run_id']}", "g")
    refused = await s.get("guardrail, in the background", f"{guarded}/{late['run_id']}", session_id="g")
    s.fact("refused", refused["status"])


async def _users_and_names(s: Story) -> None:
    said = {"message": "[say: x]", "stream": "false"}
    run = await s.post("of a user", RUNS, session_id="u", user_id="a", **said)
    s.fact("whose it is", run["user_id"])
    await s.post("of another user", RUNS, session_id="u", user_id="b", **said)
    await s.run("agents", "plain", "[say: x]", "nobodys")
    await s.post("of any user, in nobody's session", RUNS, session_id="nobodys", user_id="b", **said)
    first = await s.post("a run_id of one's own", RUNS, session_id="own", run_id="mine", **said)
    s.fact("it is kept", first["run_id"])
    taken = (409, "Run mine already exists")
    await s.post("the same run_id again", RUNS, "run-id", taken, session_id="own", run_id="mine", **said)
    keyed = {"Idempotency-Key": "k"}
    again = [await s.caller.post(RUNS, keyed, session_id="key", **said) for _ in range(2)]
    s.fact("a key is one run", len({one.json()["run_id"] for one in again}) == 1, "key-always", True)
    long = await s.caller.post(RUNS, {"Idempotency-Key": "k" * 300}, session_id="key", **said)
    refused = (422, "Idempotency-Key must have 1 to 255 printable ASCII characters")
    s.look("a key of 300 characters", long, "key-length", refused)
    shared = (409, "Session s belongs to another component: a session has one")
    await s.post(
        "another component's session", "/agents/tooled/runs", "session-component", shared, session_id="s", **said
    )
    place = {"type": "value_error", "loc": ["body", "session_id"], "input": None}
    fault = (422, [place | {"msg": "session_id must not contain / \\ ? #"}])
    await s.post("a name with a slash", RUNS, "session-names", fault, session_id="a/b", **said)
