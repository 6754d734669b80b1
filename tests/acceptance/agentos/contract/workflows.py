"""Workflows: steps, and step requirements."""

import json

from tests.acceptance.agentos.contract.story import Story

RUNS, GATED = "/workflows/flow/runs", "/workflows/gated/runs"


async def tell(s: Story) -> None:
    await s.post("workflow", RUNS, message="[say: hi]", session_id="w")
    await s.post("workflow, inline", RUNS, message="[say: hi]", session_id="w", stream="false")
    streamed = await s.post("workflow, background stream", RUNS, message="[say: x]", session_id="w", background="true")
    form = {"message": "[say: x]", "session_id": "w", "background": "true", "stream": "false"}
    begun = await s.post("workflow, background", RUNS, **form)
    path = f"{RUNS}/{begun['run_id']}"
    await s.ended(path, "w")
    await s.get("poll a workflow", path, session_id="w")
    await s.get("list of a workflow", RUNS, session_id="w")
    await s.post("replay of a workflow", f"{RUNS}/{streamed[0]['run_id']}/resume", session_id="w")
    await s.get("workflows have no checkpoints", f"{path}/checkpoints", session_id="w")
    await s.post("workflows do not regenerate", f"{path}/continue", session_id="w", stream="false", regenerate="true")
    await s.post("workflow fails", RUNS, message="[http=500]", session_id="wf")
    await s.post("workflow asks", GATED, message="[say: hi]", session_id="w2")
    run = await s.post("workflow asks, inline", GATED, message="[say: hi]", session_id="w3", stream="false")
    path = f"{GATED}/{run['run_id']}"
    form = {"session_id": "w3", "stream": "false"}
    await s.get("poll a paused workflow", path, session_id="w3")
    await s.post("workflow, undecided", f"{path}/continue", **form)
    await s.post("workflow, bad JSON", f"{path}/continue", step_requirements="{", **form)
    await s.post("workflow, unknown run", f"{GATED}/nope/continue", **form)
    said = json.dumps([{**one, "confirmed": True} for one in run["step_requirements"]])
    done = await s.post("workflow, decided", f"{path}/continue", step_requirements=said, **form)
    s.fact("the workflow's answer", (done["status"], done["content"]))
    await s.post("workflow, over", f"{path}/continue", step_requirements=said, **form)
    for label, confirmed in (("decided, stream", True), ("refused, stream", False)):
        run = await s.run("workflows", "gated", "[say: hi]", f"w-{confirmed}")
        said = json.dumps([{**one, "confirmed": confirmed} for one in run["step_requirements"]])
        path = f"{GATED}/{run['run_id']}/continue"
        await s.post(f"workflow, {label}", path, step_requirements=said, session_id=f"w-{confirmed}")
