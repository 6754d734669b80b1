"""Every route of the app, whoever adds it: strangers get 401, and what is somebody else's is answered like what does
not exist. The routes are asked of the app itself, so none can be forgotten."""

import re
from collections.abc import Iterator
from typing import Any
from uuid import UUID

from litestar.routes import HTTPRoute

from domain.ids import SessionId
from services.gateway import tokens
from services.gateway.app import create_app
from tests.acceptance.agentos.caller import Caller
from tests.support.client import Client
from tests.support.databases import Databases
from tests.support.gateways import AGENT, HttpStand, http_stand, user_token

OPEN = {
    "/": {"GET"},
    "/healthz": {"GET"},
    "/readyz": {"GET"},
    "/metrics": {"GET"},
    "/schema": {"GET"},
    "/schema/openapi.json": {"GET"},
    "/schema/{path:str}": {"GET"},
    "/page/{file_path:path}": {"GET", "HEAD"},
    "/agentos": {"GET"},
    "/agentos/health": {"GET"},
    "/agentos/info": {"GET"},
}
"""What answers whoever asks."""

THEIR_WORDS = {
    ("DELETE", "/agentos/sessions/{session_id:str}"): 204,
    ("POST", "/agentos/agents/{component_id:str}/sessions/{session_id:str}/fork"): 400,
    ("POST", "/agentos/teams/{component_id:str}/sessions/{session_id:str}/fork"): 400,
}
"""AgentOS says no 404 there."""

NOBODYS = str(UUID(int=2**127 - 1))


def routes(stand: HttpStand) -> Iterator[tuple[str, str]]:
    """Method and path template of everything that the app serves."""
    for route in create_app(stand.deps[0]).routes:
        assert isinstance(route, HTTPRoute), f"{route.path}: what is this, and who may?"
        for method in sorted(set(route.methods) - {"OPTIONS"}):
            yield method, route.path


def filled(template: str, **values: str) -> str:
    """The path with its parameters; those without a value get one that exists nowhere."""
    return re.sub(r"\{(\w+):\w+\}", lambda found: values.get(found[1], NOBODYS), template)


async def sent(client: Client, method: str, path: str, template: str, session: str) -> Any:
    """A request that would do what the route is for."""
    if template.startswith("/agentos"):
        form = {"message": "x", "session_id": session, "stream": "false", "tools": "[]"}
        query = {"session_id": session, "type": "agent"}
        if template == "/agentos/sessions" or template.endswith("/rename") or method == "PATCH":
            return await client.http.request(
                method, path, params=query, json={"session_ids": [session], "session_name": "x"}
            )
        return await client.http.request(method, path, params=query, data=form if method == "POST" else None)
    bodies = {
        "turns": {"input": "x"},
        "continue": {"answers": [{"tool_call_id": "c", "approved": True}]},
        "fork": {"from": "end", "input": "x"},
        "sessions": {"agent_id": AGENT},
    }
    if method == "GET":
        return await client.http.request(method, path, params={"q": "x"} if template == "/v1/search" else {})
    return await client.http.request(method, path, json=bodies.get(template.rpartition("/")[2], {}))


async def test_strangers_get_401_from_every_route_but_the_open_ones(databases: Databases) -> None:
    """No credential, a wrong one, and what only looks like a session token; before anything is looked at."""
    async with http_stand(databases) as stand:
        ann = stand.client()
        session = await ann.create(AGENT, external_id="shared")
        turn = (await ann.submit(session, "hi"))["turn_id"]
        values = {
            "session_ref": session,
            "session_id": session,
            "turn_ref": turn,
            "run_id": turn,
            "component_id": AGENT,
        }
        forged = tokens.mint(SessionId(session))
        strangers = [stand.client(token=token) for token in ("", "x.y.z", forged, "tls_x", user_token(key="y" * 32))]
        served: dict[str, set[str]] = {}
        wrong = []
        for method, template in routes(stand):
            served.setdefault(template, set()).add(method)
            if method in OPEN.get(template, ()):
                continue
            for stranger in strangers:
                forbidden = {401} if stranger not in strangers[2:4] else {401, 403}
                answer = await sent(stranger, method, filled(template, **values), template, "shared")
                if answer.status_code not in forbidden:
                    wrong.append((method, template, answer.status_code, answer.text[:100]))
        assert not wrong, "\n".join(map(str, wrong))
        assert {template for template, methods in OPEN.items() if not methods <= served[template]} == set()
        assert sum(map(len, served.values())) > 60
        assert (await ann.json("GET", f"/v1/sessions/{session}/status"))["queued"] == 1


async def test_what_is_somebody_elses_is_answered_like_what_does_not_exist(databases: Databases) -> None:
    """By name and by id, for another user, another workspace, and the token of another session: the same status and
    words as for a session that nobody has."""
    async with http_stand(databases) as stand:
        ann = stand.client()
        session = await ann.create(AGENT, external_id="anns")
        turn = (await ann.submit(session, "hi"))["turn_id"]
        made = await ann.json("POST", "/v1/sessions", {"agent_id": AGENT}, status=201)
        others = [
            stand.client(token=token)
            for token in (user_token("bob"), user_token("ann", workspace="other"), made["session_token"])
        ]
        values = {"turn_ref": turn, "run_id": turn, "component_id": AGENT, "message_index": "1", "eval_run_id": turn}
        asked, wrong = 0, []
        for method, template in routes(stand):
            named = {"session_ref", "session_id"} & set(re.findall(r"\{(\w+):", template))
            if not named and "run_id" not in template:
                continue
            for other in others:
                for name in (session, "anns") if other is others[0] else (session,):
                    answers = []
                    for one in (name, NOBODYS):
                        path = filled(template, **values, session_ref=one, session_id=one)
                        answer = await sent(other, method, path, template, one)
                        answers.append((answer.status_code, answer.text.replace(one, "?").replace(turn, "?")))
                    refused = answers[0][0] in (404, THEIR_WORDS.get((method, template)))
                    refused = refused or _an_error_event(answers[0]) or (answers[0][0] == 403 and other is others[2])
                    if answers[0] != answers[1] or not refused:
                        wrong.append((method, template, *answers))
                    asked += 1
        assert not wrong, "\n".join(map(str, wrong))
        assert asked > 100
        assert (await ann.json("GET", f"/v1/sessions/{session}/status"))["queued"] == 1
        assert (await ann.json("GET", f"/v1/sessions/{session}"))["title"] is None


def _an_error_event(answer: tuple[int, str]) -> bool:
    """AgentOS's streams answer 200, and the refusal is their only event."""
    return answer[0] == 200 and answer[1].startswith("event: error\n") and answer[1].count("event:") == 1


async def test_a_session_token_opens_nothing_beside_its_session(databases: Databases) -> None:
    async with http_stand(databases) as stand:
        ann = stand.client()
        made = await ann.json("POST", "/v1/sessions", {"agent_id": AGENT}, status=201)
        holder = stand.client(token=made["session_token"])
        assert (await holder.json("GET", f"/v1/sessions/{made['session_id']}"))["session_id"] == made["session_id"]
        for path in ("/v1/agents", "/v1/projections", "/v1/sessions", "/v1/search?q=x"):
            assert (await holder.json("GET", path, status=403))["code"] == "user_needed"
        await holder.json("POST", "/v1/sessions", {"agent_id": AGENT}, status=403)
        async with Caller(
            stand.gateways[0] + "/agentos", {"Authorization": f"Bearer {made['session_token']}"}
        ) as caller:
            for path in ("/config", "/agents", f"/agents/{AGENT}", "/sessions", "/eval-runs"):
                assert (await caller.get(path)).status_code == 403, path
            begun = await caller.post(f"/agents/{AGENT}/runs", message="x")
            assert begun.status_code == 403
