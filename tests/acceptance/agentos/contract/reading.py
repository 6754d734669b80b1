"""§4 to §6: poll, list, cancel, resume."""

import json
from typing import Any

from tests.acceptance.agentos.contract.story import Story
from tests.support.sse import SseParser

RUNS = "/agents/plain/runs"


async def tell(s: Story) -> None:
    await s.together(_polling, _cancelling, _resuming)


async def _polling(s: Story) -> None:
    run = await s.run("agents", "plain", "[say: r]", "r")
    path = f"{RUNS}/{run['run_id']}"
    await s.get("poll", path, session_id="r")
    await s.get("poll without session", path)
    await s.get("poll unknown", f"{RUNS}/nope", session_id="r")
    await s.get("poll in an unknown session", path, session_id="nowhere")
    await s.get("poll by another agent", f"/agents/tooled/runs/{run['run_id']}", session_id="r")
    await s.get("poll by an unknown agent", f"/agents/nope/runs/{run['run_id']}", session_id="r")
    await s.get("list", RUNS, session_id="r")
    await s.get("list of a status", RUNS, session_id="r", status="COMPLETED")
    s.fact("none has it", await s.get("list of no status", RUNS, session_id="r", status="NOPE"))
    await s.get("list without session", RUNS)
    await s.get("list unknown session", RUNS, session_id="nowhere")
    await s.get("list of an unknown agent", "/agents/nope/runs", session_id="r")


async def _cancelling(s: Story) -> None:
    run = await s.run("agents", "plain", "[say: r]", "c")
    path = f"{RUNS}/{run['run_id']}"
    await s.post("cancel a finished run", f"{path}/cancel", session_id="c")
    s.fact("it stays", (await s.ended(path, "c"))["status"])
    unknown = (404, "Run not found")
    await s.post("cancel an unknown run", f"{RUNS}/nope/cancel", "cancel-unknown", unknown, session_id="c")
    await s.post("cancel, unknown agent", "/agents/nope/runs/nope/cancel", session_id="c")
    await s.post("cancel by another agent", f"/agents/tooled/runs/{run['run_id']}/cancel", "foreign", unknown)
    form = {"message": "[gap=0.03] [words=200]", "session_id": "c2", "background": "true"}
    content, path = b"", ""
    async with s.caller.http.stream("POST", RUNS, data=form) as answer:
        async for chunk in answer.aiter_bytes():
            content += chunk
            if not path and content.count(b"event: RunContent\n") > 3:
                path = f"{RUNS}/{json.loads(SseParser().feed(content)[0].data)['run_id']}"
                await s.get("poll while it runs", path, session_id="c2")
                await s.post("cancel", f"{path}/cancel", session_id="c2")
    frames = s.streamed("stream of a cancelled run", answer, content)
    s.fact("its pair says the same", frames[-2]["content"] == frames[-1]["content"] != "")
    found = await s.ended(path, "c2")
    await s.get("poll a cancelled run", path, session_id="c2")
    s.fact("what became of it", (found["status"], found["cancellation_stage"]))
    s.fact("what it said is kept", found["content"] == frames[-1]["content"])
    await s.post("continue a cancelled run", f"{path}/continue", session_id="c2", stream="false")


async def _resuming(s: Story) -> None:
    await s.post("resume an unknown run", f"{RUNS}/nope/resume", session_id="r2")
    await s.post("resume, unknown agent", "/agents/nope/runs/nope/resume", session_id="r2")
    frames = await s.caller.stream(RUNS, message="[say: a b]", session_id="r2", background="true")
    path = f"{RUNS}/{json.loads(frames[0].data)['run_id']}"
    await s.post("resume no number", f"{path}/resume", last_event_index="x")
    await s.get("resume by GET", f"{path}/resume", "resume-get", 200, session_id="r2")
    await s.post("replay all", f"{path}/resume", session_id="r2")
    resumed = await s.post("replay", f"{path}/resume", session_id="r2", last_event_index=1)
    s.fact("as many as it says", resumed[0]["total_events"] == len(resumed) - 1)
    await s.post("resume beyond the end", f"{path}/resume", session_id="r2", last_event_index=99)
    elsewhere = path.replace("plain", "tooled")
    other = await s.caller.post(f"{elsewhere}/resume", session_id="r2")
    s.fact("resume by another agent", "RunCompleted" in other.text, "foreign", False)
    await _live(s, "resume while it runs", "r3", b"catch_up")
    await _live(s, "resume, nothing missed", "r4", b"subscribed", last_event_index=2)


async def _live(s: Story, label: str, session: str, first_frame: bytes, **form: Any) -> None:
    """A run is resumed before it says anything; where that came too late, a slower one."""
    for delay in (0.7, 3, 12):
        begun = {"message": f"[delay={delay}] [say: c d]", "session_id": session, "background": "true"}
        first = [json.loads(frame.data) for frame in await s.caller.stream(RUNS, 2, **begun)]
        answer = await s.caller.post(f"{RUNS}/{first[0]['run_id']}/resume", session_id=session, **form)
        if answer.content.startswith(b"event: " + first_frame):
            break
    s.look(label, answer)
