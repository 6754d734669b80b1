"""Agno components are the user's: each turn runs a copy, behind the gate, and nothing of it outlives the turn."""

import asyncio
import functools
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import structlog.testing
from agno.agent import Agent
from agno.agent.remote import RemoteAgent
from agno.db.in_memory import InMemoryDb
from agno.run import RunContext
from agno.team import Team, TeamMode
from agno.workflow import Parallel, Router, Step, Workflow

from domain import commands
from domain.ids import CommandKey, TurnId
from domain.parts import TextPart
from infra.system import SystemIds
from services.paths import UnloadableObject
from services.worker.runtimes.agno import AgnoRuntime
from services.worker.runtimes.agno.store import TurnStore
from tests.support.agno_script import Script
from tests.support.agno_turns import Turns, yes
from tests.support.execution import SECRET, Bench

found: list[tuple[str, bool]] = []
"""Of each tool that ran: its argument, and whether its start was in the log by then."""

bench: list[Bench] = []


@pytest.fixture(autouse=True)
def forget() -> None:
    found.clear()
    bench.clear()


def _started(q: str) -> bool:
    """`tool.started` of the call with that argument is committed."""
    events: list[Any] = [
        event.event() for event in bench[-1].store.events if event.type in ("item.completed", "tool.started")
    ]
    items = [one.item_id for one in events if one.type == "item.completed" and _asks(one, q)]
    return any(one.type == "tool.started" and one.item_id in items for one in events)


def _asks(item: Any, q: str) -> bool:
    return item.tool_call is not None and item.tool_call.arguments.get("q") == q


async def look(q: str) -> str:
    """Asynchronous."""
    found.append((q, _started(q)))
    return f"saw {q}"


def look_plain(q: str) -> str:
    """In a thread."""
    found.append((q, _started(q)))
    return f"saw {q}"


def _member(name: str) -> Agent:
    says = ([("look", {"q": f"{name}1"}), ("look_plain", {"q": f"{name}2"})], f"{name} is done")
    return Agent(id=name, name=name, role="r", model=Script(id=name, says=says), tools=[look, look_plain])


def _to(member: str) -> tuple[str, dict[str, Any]]:
    return "delegate_task_to_member", {"member_id": member, "task": "look"}


def coordinate() -> Team:
    says = ([_to("left"), _to("right")], "done")
    return Team(id="t", model=Script(says=says), members=[_member("left"), _member("right")])


def deep() -> Team:
    inner = Team(id="inner", name="inner", model=Script(says=([_to("leaf")], "x")), members=[_member("leaf")])
    middle = Team(id="middle", name="middle", model=Script(says=([_to("inner")], "x")), members=[inner])
    return Team(id="t", model=Script(says=([_to("middle")], "done")), members=[middle])


def broadcast() -> Team:
    says = ([("delegate_task_to_members", {"task": "look"})], "done")
    members: list[Any] = [_member("left"), _member("right")]
    return Team(id="t", model=Script(says=says), members=members, mode=TeamMode.broadcast)


def late_members() -> Team:
    """Members that are only known when the team runs."""

    def members() -> list[Any]:
        return [_member("left")]

    return Team(id="t", model=Script(says=([_to("left")], "done")), members=members)


def flow() -> Workflow:
    chosen: Any = Step(name="chosen", agent=_member("chosen"))
    side: Any = Parallel(Step(name="p", agent=_member("p")), Step(name="q", agent=_member("q")))  # type: ignore[arg-type]
    last: Any = coordinate()
    return Workflow(
        id="w", name="w", steps=[side, Router(name="r", selector=lambda _: [chosen], choices=[chosen]), last]
    )


@pytest.mark.parametrize("make", [coordinate, deep, broadcast, late_members, flow], ids=lambda make: make.__name__)
async def test_no_tool_of_a_member_runs_before_its_start_is_in_the_log(make: Callable[[], Any]) -> None:
    """With a store that is slow to commit, whatever the depth."""
    turns = Turns(make)
    bench.append(turns.bench)
    turns.store.delay = 0.05
    turn = await turns.run()
    assert turns.store.types(turn)[-1] == "turn.completed", turns.end(turn)
    assert len(found) >= 2
    assert all(started for _, started in found), found


def shape(value: Any, depth: int = 0, seen: set[int] | None = None) -> Any:
    """What an object is made of, as far as it is Agno's or plain data."""
    seen = set() if seen is None else seen
    if isinstance(value, str | int | float | bool | type(None)):
        return value
    if id(value) in seen or depth > 8:
        return id(value)
    seen.add(id(value))
    if isinstance(value, dict):
        return {str(key): shape(inner, depth + 1, seen) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [shape(inner, depth + 1, seen) for inner in value]
    if type(value).__module__.startswith("agno.") and hasattr(value, "__dict__"):
        return {name: shape(inner, depth + 1, seen) for name, inner in vars(value).items()}
    return id(value)


@pytest.mark.parametrize("make", [coordinate, deep, broadcast, flow], ids=lambda make: make.__name__)
async def test_a_users_component_is_as_it_was(make: Callable[[], Any]) -> None:
    component = make()
    AgnoRuntime(component, "x")  # what it needs of it it takes now
    before = shape(component)
    turns = Turns(lambda: component)
    bench.append(turns.bench)
    for _ in range(2):
        assert turns.store.types(await turns.run())[-1] == "turn.completed"
    assert shape(component) == before


def remember(word: str, run_context: RunContext) -> str:
    """Keep a word in the session's state."""
    state = run_context.session_state
    assert state is not None
    state["words"] = [*state.get("words", []), word]
    return f"kept {len(state['words'])}"


async def test_sessions_that_run_at_once_through_one_component_share_nothing() -> None:
    """Session state, caches, memories and histories; with all of Agno's caches asked for."""
    db = InMemoryDb()  # type: ignore[no-untyped-call]

    class Echo(Script):
        """Keeps the word that it is given."""

        def _next(self, messages: Any) -> Any:
            last = str(messages[-1].content)
            return last if messages[-1].role == "tool" else [("remember", {"word": last})]

    component = Agent(
        id="one",
        model=Echo(),
        tools=[remember],
        session_state={"words": []},
        cache_session=True,
        add_history_to_context=True,
        db=db,
    )
    sessions = [Turns(lambda: component) for _ in range(4)]

    async def talk(name: int, turns: Turns) -> None:
        for round in range(3):
            turn = await turns.run(f"s{name}r{round}")
            assert turns.output(turn).strip() == f"kept {round + 1}"
            (state,) = [e.payload for e in turns.store.data(turn, "runtime.event") if e.name == "SessionState"]
            assert state["words"] == [f"s{name}r{n}" for n in range(round + 1)]

    await asyncio.gather(*(talk(name, turns) for name, turns in enumerate(sessions)))
    assert isinstance(component.model, Script)
    for asked in component.model.asked:
        mine = {text[:2] for role, text in asked if role == "user"}
        assert len(mine) == 1, "no message of another session"
    assert component.session_state == {"words": []}
    assert component._cached_session is None
    assert db.get_sessions() == []


async def test_nothing_outlives_the_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    alive: list[weakref.ref[Any]] = []
    made = TurnStore.__init__

    def noted(self: TurnStore, session_id: str) -> None:
        made(self, session_id)
        alive.append(weakref.ref(self))

    monkeypatch.setattr(TurnStore, "__init__", noted)
    for make in (coordinate, flow):
        component = make()
        runtime = AgnoRuntime(component, "x")
        for _ in range(3):
            b = Bench(runtime)
            bench.append(b)
            assert b.store.types(await b.turn("go"))[-1] == "turn.completed"
        bench.clear()
        del b
    for _ in range(3):
        await asyncio.sleep(0)  # tasks that are done let go of what they held
        gc.collect()
    assert len(alive) == 6
    assert [one for one in alive if one() is not None] == []


def test_a_store_of_the_users_is_ignored_with_one_warning() -> None:
    db = InMemoryDb()  # type: ignore[no-untyped-call]
    member = Agent(id="m", name="m", model=Script(), db=db)
    team = Team(id="t", model=Script(), members=[member], db=db)
    with structlog.testing.capture_logs() as logs:
        for _ in range(3):
            AgnoRuntime(team, "t")
    assert [one["event"] for one in logs] == ["agno.db_ignored"]


@functools.cache
def _remote() -> Any:
    return RemoteAgent(base_url="http://127.0.0.1:1", agent_id="far")


@pytest.mark.parametrize(
    "make",
    [
        lambda: Team(id="x", model=Script(), members=[_remote()]),
        lambda: Team(id="x", model=Script(), members=[Team(id="y", model=Script(), members=[_remote()])]),
        lambda: Workflow(id="x", name="x", steps=[Step(name="s", agent=_remote())]),
    ],
)
def test_what_runs_elsewhere_is_refused(make: Callable[[], Any]) -> None:
    with pytest.raises(UnloadableObject, match="remote components keep their runs elsewhere"):
        AgnoRuntime(make(), "x")


async def test_the_words_of_a_failed_tool_are_its_result_and_nothing_else() -> None:
    """Agno hands them to the model, and AgentOS to clients: so do we (docs/adr/0006-agno.md). No log line has them."""

    def broken(q: str) -> str:
        """Fails."""
        raise ValueError(f"no such thing: {SECRET}")

    model = Script(says=([("broken", {"q": "x"})], "so be it"))
    turns = Turns(lambda: Agent(id="one", model=model, tools=[broken]))
    with structlog.testing.capture_logs() as logs:
        turn = await turns.run()
    assert turns.results(turn) == [(f"no such thing: {SECRET}", True)]
    assert model.asked[-1][-1] == ("tool", f"no such thing: {SECRET}")
    assert turns.output(turn).strip() == "so be it"
    assert SECRET not in repr(logs)


async def test_a_fork_goes_on_from_the_rewritten_input_and_a_regenerated_turn_begins_with_it() -> None:
    def louder(run_input: Any) -> None:
        text = str(run_input.input_content)
        run_input.input_content = text if text.endswith("!") else text + "!"

    model = Script(says=("well",))
    turns = Turns(lambda: Agent(id="one", model=model, pre_hooks=[louder]))
    first = await turns.run("hi")
    await turns.store.execute(
        commands.RegenerateTurn(
            session_id=turns.store.session_id,
            key=CommandKey("again"),
            turn_id=TurnId(SystemIds().uuid7()),
            source_turn_id=TurnId(first),
        )
    )  # fmt: skip
    await turns.take_over()
    assert [asked[-1] for asked in model.asked] == [("user", "hi!"), ("user", "hi!")]
    assert len([e for e in turns.store.events if e.type == "turn.input_rewritten"]) == 1, "it was rewritten before"
    await turns.store.execute(
        commands.ForkTurn(
            session_id=turns.store.session_id,
            key=CommandKey("fork"),
            turn_id=TurnId(SystemIds().uuid7()),
            source_turn_id=TurnId(first),
            place="end",
            input=[TextPart("more")],
        )
    )
    await turns.take_over()
    assert [text for role, text in model.asked[-1] if role == "user"] == ["hi!", "more!"]


async def test_an_answer_of_an_agent_that_asked_before_a_restart_reaches_a_component_made_anew() -> None:
    from agno.tools import tool

    @tool(requires_confirmation=True)
    def act(q: str) -> str:
        """Asks."""
        return f"did {q}"

    turns = Turns(lambda: Agent(id="one", model=Script(says=([("act", {"q": "x"})], "done")), tools=[act]))
    turn = await turns.run()
    await turns.answer(turn, {turns.asks(turn)[0].tool_call_id: yes()})
    assert turns.results(turn) == [("did x", False)]
