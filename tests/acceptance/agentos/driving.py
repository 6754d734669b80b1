"""Agno's own client at work on one kind of component: run, stream, continue, cancel; and on sessions."""

from typing import Any

from agno.client import AgentOSClient

from tests.support.waiting import eventually

FIRST = {"agent": "RunStarted", "team": "TeamRunStarted", "workflow": "WorkflowStarted"}
LAST = {"agent": "RunCompleted", "team": "TeamRunCompleted", "workflow": "WorkflowCompleted"}


class Drive:
    """`kind`: agent, team or workflow; sessions are named after it."""

    def __init__(self, client: AgentOSClient, kind: str) -> None:
        self._client = client
        self._kind = kind
        self._session = f"client-{kind}"

    def _call(self, name: str, *words: Any, **more: Any) -> Any:
        return getattr(self._client, name.format(self._kind))(*words, **more)

    async def runs(self, component: str) -> None:
        """Created, whole and as a stream."""
        run = await self._call("run_{}", component, message="[say: hello there]", session_id=self._session)
        assert (run.session_id, run.status) == (self._session, "COMPLETED")
        said = ("hello there", "one two")
        if self._kind == "workflow":
            # Its second step is asked about what the first has said.
            said = (str(run.content), str(run.content))
            assert said[0].startswith("Deterministic answer")
        assert run.content == said[0]
        stream = self._call("run_{}_stream", component, message="[say: one two]", session_id=self._session)
        seen = [event async for event in stream]
        assert (seen[0].event, seen[-1].event) == (FIRST[self._kind], LAST[self._kind])
        assert seen[-1].content == said[1]
        prefix = "Team" if self._kind == "team" else ""
        pieces = [event for event in seen if event.event == f"{prefix}RunContent" and event.run_id == seen[-1].run_id]
        assert "".join(str(event.content) for event in pieces) == ("" if self._kind == "workflow" else "one two")

    async def asks(self, component: str, message: str) -> None:
        """Paused and continued, whole and as a stream: the same run."""
        for number in range(2):
            session = f"{self._session}-asks-{number}"
            asked = await self._call("run_{}", component, message=message, session_id=session)
            assert asked.status == "PAUSED"
            words = (component, str(asked.run_id), self._decided(asked))
            if number == 0:
                done = await self._call("continue_{}_run", *words, session_id=session)
                assert (done.run_id, done.status) == (asked.run_id, "COMPLETED")
            else:
                seen = [event async for event in self._call("continue_{}_run_stream", *words, session_id=session)]
                assert (seen[-1].event, seen[-1].run_id) == (LAST[self._kind], asked.run_id)

    async def is_cancelled(self, component: str) -> None:
        """In mid-stream, from the outside: the client names no session."""
        session = f"{self._session}-slow"
        stream = self._call("run_{}_stream", component, message="[words=400][gap=0.05]", session_id=session)
        seen: list[Any] = []
        async for event in stream:
            seen.append(event)
            if len([one for one in seen if one.event.endswith("RunContent")]) == 3:
                await self._call("cancel_{}_run", component, seen[0].run_id)
        assert [event.event for event in seen[-2:]] == [
            LAST[self._kind].replace("Completed", "Cancelled"),
            LAST[self._kind],
        ]

        async def cancelled() -> bool:
            found = await self._client.get_session_runs(session)
            return str(getattr(found[0].status, "value", found[0].status)) == "CANCELLED"

        await eventually(cancelled, "the run is cancelled")

    def _decided(self, asked: Any) -> list[Any]:
        if self._kind == "agent":
            for tool in asked.tools or []:
                tool.confirmed = True
            return list(asked.tools or [])
        if self._kind == "team":
            for requirement in asked.requirements or []:
                requirement.confirm()
            return list(asked.requirements or [])
        requirements = asked.step_requirements or []
        for requirement in requirements:
            requirement.confirm()
        return [one.to_dict() for one in requirements]


async def sessions_of(client: AgentOSClient) -> None:
    """What there is after those runs; made, read, renamed, deleted."""
    sessions = await client.get_sessions(limit=100)
    assert {row.session_id for row in sessions.data} >= {"client-agent", "client-team", "client-workflow"}
    assert (await client.get_session("client-agent")).session_name == "[say: hello there]"
    runs = await client.get_session_runs("client-agent")
    assert len(runs) == len(await client.aget_session_run_previews("client-agent")) == 2
    assert (await client.get_session_run("client-agent", runs[0].run_id)).run_id == runs[0].run_id
    made = await client.create_session(session_id="client-made", agent_id="plain", session_name="Made")
    assert made.session_name == "Made"
    assert (await client.rename_session("client-made", "Another")).session_name == "Another"
    await client.delete_session("client-made")
    assert "client-made" not in {row.session_id for row in (await client.get_sessions(limit=100)).data}
