"""One script over AgentOS's contract, run against any server that claims to have it, and what it saw there."""

import json
from dataclasses import dataclass, field
from typing import Any

import httpx2

from tests.acceptance.agentos.caller import Caller
from tests.support.sse import SseParser

_BY_CHANCE = frozenset(("event_index", "model_provider_data", "time_to_first_token"))
"""Keys that depend on the provider or on the kind of stream, each a line of the table."""


@dataclass
class Seen:
    """What a request showed of the contract. `deviation`: the line of the table that says why ours differs."""

    label: str
    deviation: str | None
    status: int = 0
    detail: Any = None
    keys: tuple[str, ...] = ()
    events: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)

    @property
    def shape(self) -> Any:
        return (self.status, self.detail, self.keys, self.events)


class Story:
    """The script; `seen` is its outcome."""

    def __init__(self, caller: Caller) -> None:
        self.seen: list[Seen] = []
        self._caller = caller

    async def _look(self, label: str, deviation: str | None, answer: httpx2.Response) -> Any:
        seen = Seen(label, deviation, answer.status_code)
        self.seen.append(seen)
        if "event-stream" in answer.headers.get("content-type", ""):
            frames = [(frame.event, json.loads(frame.data)) for frame in SseParser().feed(answer.content)]
            for name, data in frames:
                empty = name.endswith("RunContent") and not data["content"]
                keys = _keys(data)
                if not empty and not (seen.events and seen.events[-1] == (name, keys)):
                    seen.events.append((name, keys))
            return [data for _, data in frames]
        body = answer.json() if answer.content else None
        if isinstance(body, dict) and "detail" in body:
            seen.detail = body["detail"]
        elif isinstance(body, dict):
            seen.keys = _keys(body)
        return body

    async def post(self, label: str, path: str, deviation: str | None = None, **form: Any) -> Any:
        return await self._look(label, deviation, await self._caller.post(path, **form))

    async def get(self, label: str, path: str, deviation: str | None = None, **query: Any) -> Any:
        return await self._look(label, deviation, await self._caller.get(path, **query))

    async def send(self, label: str, method: str, path: str, body: Any, deviation: str | None = None) -> Any:
        return await self._look(label, deviation, await self._caller.http.request(method, path, json=body))

    async def tell(self) -> None:
        await self._creating()
        await self._reading()
        await self._deciding()
        await self._branching()
        await self._teams()
        await self._workflows()
        await self._sessions()
        await self._discovery()

    async def _creating(self) -> None:
        runs = "/agents/plain/runs"
        await self.post("inline stream", runs, message="[say: hello there]", session_id="s")
        await self.post("inline", runs, message="[say: hello]", session_id="s", stream="false")
        await self.post("background stream", runs, message="[say: hello]", session_id="s", background="true")
        await self.post("background", runs, message="[say: hi]", session_id="s", background="true", stream="false")
        tools = '[tool: value {"name": "a"}] [tool: broken {"name": "b"}]'
        await self.post("tools", "/agents/tooled/runs", message=tools, session_id="tools")
        await self.send("a JSON body", "POST", runs, {"message": "x"})
        await self.post("empty message", runs, message="")
        await self.post("no boolean", runs, message="x", stream="maybe")
        await self.post("unknown agent", "/agents/nope/runs", message="x")
        await self.post("unknown team", "/teams/nope/runs", message="x")
        await self.post("unknown workflow", "/workflows/nope/runs", message="x")
        await self.post("metadata no object", runs, message="x", stream="false", metadata="[1]")
        await self.post("images no JSON", runs, message="x", stream="false", images="x")
        await self.post("schema no JSON", runs, message="x", stream="false", output_schema="x")
        await self.post("content only", runs, message="[say: x y]", stream_events="false")
        await self.post("model fails", runs, message="[http=500]", session_id="e")
        await self.post("model fails, inline", runs, message="[http=500]", session_id="e", stream="false")
        await self.post("guardrail", "/agents/guarded/runs", "hook-events", message="forbidden", session_id="g")
        said = await self.post("of a user", runs, message="[say: x]", session_id="u", user_id="a", stream="false")
        assert said["user_id"] == "a"
        await self.post("of another user", runs, message="x", session_id="u", user_id="b", stream="false")

    async def _reading(self) -> None:
        run = (await self._caller.post("/agents/plain/runs", message="[say: r]", session_id="r", stream="false")).json()
        path = f"/agents/plain/runs/{run['run_id']}"
        await self.get("poll", path, session_id="r")
        await self.get("poll without session", path)
        await self.get("poll unknown", "/agents/plain/runs/nope", session_id="r")
        await self.get("poll by another agent", f"/agents/tooled/runs/{run['run_id']}", session_id="r")
        await self.get("list", "/agents/plain/runs", session_id="r")
        await self.get("list without session", "/agents/plain/runs")
        await self.get("list unknown session", "/agents/plain/runs", session_id="nowhere")
        await self.post("cancel a finished run", f"{path}/cancel", "cancel-answer", session_id="r")
        await self.post("cancel an unknown run", "/agents/plain/runs/nope/cancel", "cancel-unknown", session_id="r")
        await self.post("resume an unknown run", "/agents/plain/runs/nope/resume", session_id="r")
        await self.post("resume no number", f"{path}/resume", last_event_index="x")
        await self.get("resume by GET", f"{path}/resume", "resume-get", session_id="r")
        frames = await self._caller.stream(
            "/agents/plain/runs", message="[say: a b]", session_id="r2", background="true"
        )
        first = json.loads(frames[0].data)
        resumed = await self.post(
            "replay", f"/agents/plain/runs/{first['run_id']}/resume", session_id="r2", last_event_index=1
        )
        assert resumed[0]["total_events"] == len(resumed) - 1

    async def _deciding(self) -> None:
        runs = "/agents/tooled/runs"
        asked = await self.post("asks", runs, message='[tool: act {"what": "a"}]', session_id="d")
        tools = asked[-1]["tools"]
        path = f"{runs}/{asked[0]['run_id']}/continue"
        await self.post("no session", path, tools=json.dumps(tools), stream="false")
        await self.post("bad JSON", path, tools="{", session_id="d", stream="false")
        await self.post("no array", path, "continue-shape", tools='{"x": 1}', session_id="d", stream="false")
        await self.post("unknown run", f"{runs}/nope/continue", session_id="d", stream="false")
        await self.post("unknown run, stream", f"{runs}/nope/continue", "continue-unknown-stream", session_id="d")
        tools[0]["confirmed"] = True
        await self.post("confirmed", path, tools=json.dumps(tools), session_id="d")
        for label, message, change in (
            ("refused", '[tool: act {"what": "a"}]', {"confirmed": False, "confirmation_note": "no"}),
            ("external", '[tool: outside {"what": "a"}]', {"result": "done"}),
            ("input", '[tool: go {"how": "train"}]', {"answered": True}),
        ):
            run = await self.post(f"asks, {label}", runs, message=message, session_id=f"d-{label}", stream="false")
            tools = [{**tool, **change} for tool in run["tools"]]
            for entry in tools[0]["user_input_schema"] or []:
                entry["value"] = entry["value"] or "Rome"
            path = f"{runs}/{run['run_id']}/continue"
            await self.post(label, path, tools=json.dumps(tools), session_id=f"d-{label}", stream="false")

    async def _branching(self) -> None:
        runs = "/agents/checked/runs"
        message = '[tool: value {"name": "a"}] [again: value {"name": "b"}]'
        run = await self.post("two batches", runs, message=message, session_id="b", stream="false")
        path = f"{runs}/{run['run_id']}"
        listed = await self.get("checkpoints", f"{path}/checkpoints", session_id="b")
        assert [one["message_index"] for one in listed["checkpoints"]] == [3, 5, 6]
        await self.get("snapshot", f"{path}/checkpoints/3", session_id="b")
        await self.get("snapshot out of range", f"{path}/checkpoints/99", session_id="b")
        await self.get("snapshot no number", f"{path}/checkpoints/x", session_id="b")
        await self.get("checkpoints without session", f"{path}/checkpoints")
        forked = await self.post(
            "fork",
            f"{path}/continue",
            "messages-own",
            session_id="b",
            stream="false",
            continue_from=3,
            input="[say: new]",
        )
        assert forked["forked_from_message_index"] == 3
        inside = await self.post(
            "fork inside a batch", f"{path}/continue", session_id="b", stream="false", continue_from=4
        )
        assert inside["forked_from_message_index"] == 3
        await self.post("fork, stream", f"{path}/continue", session_id="b", continue_from=3)
        await self.post(
            "regenerate", f"{path}/continue", "messages-own", session_id="b", stream="false", regenerate="true"
        )
        for label, further, deviation in (
            ("no place", {"continue_from": "zz"}, None),
            ("replace alone", {"replace_original": "true"}, None),
            ("regenerate from", {"regenerate": "true", "continue_from": "2"}, None),
            ("regenerate and fork", {"regenerate": "true", "fork": "true"}, None),
            ("two inputs", {"input": "a", "additional_instructions": "b", "regenerate": "true"}, None),
            ("beyond", {"continue_from": "99"}, "continue-range"),
            ("before", {"continue_from": "-1"}, "continue-range"),
        ):
            await self.post(label, f"{path}/continue", deviation, session_id="b", stream="false", **further)

    async def _teams(self) -> None:
        runs = "/teams/crew/runs"
        await self.post("team", runs, message="[say: hi team]", session_id="t")
        await self.post("team, inline", runs, message="[say: hi team]", session_id="t", stream="false")
        task = json.dumps({"member_id": "member", "task": "[say: member says]"})
        await self.post("delegated", runs, message=f"[tool: delegate_task_to_member {task}]", session_id="t2")
        asked = await self.post("team asks", runs, message='[tool: act {"what": "q"}]', session_id="t3")
        requirements = asked[-1]["requirements"]
        path = f"{runs}/{asked[0]['run_id']}/continue"
        await self.post("team, undecided", path, requirements=json.dumps(requirements), session_id="t3", stream="false")
        requirements[0]["confirmation"] = True
        requirements[0]["tool_execution"]["confirmed"] = True
        await self.post("team, decided", path, requirements=json.dumps(requirements), session_id="t3", stream="false")

    async def _workflows(self) -> None:
        runs = "/workflows/flow/runs"
        await self.post("workflow", runs, message="[say: hi]", session_id="w")
        await self.post("workflow, inline", runs, "workflow-media", message="[say: hi]", session_id="w", stream="false")
        gated = "/workflows/gated/runs"
        await self.post("workflow asks", gated, "workflow-bare", message="[say: hi]", session_id="w2")
        run = await self.post("workflow asks, inline", gated, message="[say: hi]", session_id="w3", stream="false")
        path = f"{gated}/{run['run_id']}/continue"
        await self.post("workflow, undecided", path, session_id="w3", stream="false")
        decided = [{**one, "confirmed": True} for one in run["step_requirements"]]
        said = json.dumps(decided)
        await self.post(
            "workflow, decided", path, "workflow-media", step_requirements=said, session_id="w3", stream="false"
        )
        await self.post("workflow, over", path, step_requirements=said, session_id="w3", stream="false")

    async def _sessions(self) -> None:
        await self.get("sessions", "/sessions", type="agent", limit=1)
        await self.get("session", "/sessions/r", type="agent")
        await self.get("no session", "/sessions/nowhere", type="agent")
        await self.get("session runs", "/sessions/r/runs", type="agent")
        await self.get("no session runs", "/sessions/nowhere/runs", type="agent")
        await self.get("previews", "/sessions/r/run-previews", type="agent")
        await self.get("no such run", "/sessions/r/runs/nope", type="agent")
        new = {"session_id": "made", "agent_id": "plain", "session_name": "N", "session_state": {"a": 1}}
        await self.send("create session", "POST", "/sessions?type=agent", new)
        await self.send("create it again", "POST", "/sessions?type=agent", new)
        await self.send("rename", "POST", "/sessions/r/rename?type=agent", {"session_name": "R"}, "session-nulls")
        await self.send("delete", "DELETE", "/sessions/made", None)
        await self.send("delete nothing", "DELETE", "/sessions/nowhere", None)
        await self.post(
            "in a deleted session", "/agents/plain/runs", "session-gone", message="x", session_id="made", stream="false"
        )

    async def _discovery(self) -> None:
        for path in ("/health", "/info", "/agents/tooled", "/teams/crew", "/workflows/flow"):
            await self.get(path, path)
        await self.get("/config", "/config", "config-parts")
        for path in ("/agents/nope", "/teams/nope", "/workflows/nope", "/eval-runs", "/nowhere"):
            await self.get(path, path)


def _keys(body: dict[str, Any]) -> tuple[str, ...]:
    return tuple(sorted(set(body) - _BY_CHANCE))
