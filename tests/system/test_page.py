"""The page in a real browser: what a person does with it, and what must not disturb them."""

import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.client import Client
from tests.support.cluster import Cluster
from tests.support.lifecycle_agents import lines
from tests.system.browsing import Browser, Tab
from tests.system.judging import cut_wire
from tests.system.tools import needs_chromium

pytestmark = [pytest.mark.system, needs_chromium, pytest.mark.asyncio(loop_scope="module")]


async def opened(browser: Browser, site: Cluster, agent: str, gateway: int = 0, **looks: Any) -> tuple[Tab, str]:
    """A tab with a new session of that agent."""
    session = await site.client().create(agent)
    tab = await browser.tab(f"{site.gateways[gateway].url}/#{session}", **looks)
    await tab.live()
    return tab, session


async def said(client: Client, session: str) -> list[str]:
    """What the read model has of the agent's side."""
    found = [message for message in await client.messages(session) if message["role"] == "assistant"]
    return ["".join(part["text"] for part in message["parts"]) for message in found]


def assert_grew(states: list[str], final: str) -> None:
    """Each state is a beginning of what it came to: nothing was ever doubled, lost or taken back."""
    assert all(final.startswith(state) for state in states), states


async def test_a_refresh_in_mid_sentence_loses_and_doubles_nothing(
    browser: Browser, site: Cluster, tmp_path: Path
) -> None:
    tab, session = await opened(browser, site, "counting")
    await tab.say(str(tmp_path / "enough"))
    for reload in range(1, 4):
        await tab.shows(1, f" {reload * 15} ")
        before = await tab.texts(1)
        await tab.page.reload()
        await tab.shows(1, before)
        await tab.streams()
        assert_grew(await tab.witnessed(), await tab.texts(1))
    (tmp_path / "enough").touch()
    await tab.ended(1, "completed")
    final = await tab.texts(1)
    assert final.split() == [str(number) for number in range(len(final.split()))]
    assert [final] == await said(site.client(), session)
    assert_grew(await tab.witnessed(), final)


@pytest.mark.parametrize(
    "cuts", [pytest.param(range(1, 12, 3), id="some"), pytest.param(range(1, 12), id="every", marks=pytest.mark.soak)]
)
async def test_cut_behind_an_event_it_shows_the_same_from_the_other_gateway(
    browser: Browser, site: Cluster, cuts: range
) -> None:
    """Chromium's own EventSource, a tab for each place to cut at."""
    ports = [gateway.port or 0 for gateway in site.gateways]
    session = await site.client().create("tools")
    async with AsyncExitStack() as stack:
        wires = [await stack.enter_async_context(cut_wire(ports, after)) for after in (0, *cuts)]
        tabs = await asyncio.gather(*(browser.tab(f"{wire}/#{session}") for wire in wires))
        await tabs[0].live()
        await site.client().submit(session, "漢字 é 👩‍👩‍👧 x")
        for tab in tabs:
            await tab.ended(1, "completed")
            await tab.live()
        shown = [await tab.turn(1).text_content() for tab in tabs]
        streams = [sum("/events?" in request for request in tab.requests) for tab in tabs]
    assert set(shown) == {shown[0]}
    assert "found 漢字 é 👩‍👩‍👧 x" in shown[0]
    assert streams[0] == 1
    assert min(streams[1:]) > 1, "each was cut"


async def test_two_tabs_show_the_same_and_either_interrupts(browser: Browser, site: Cluster) -> None:
    one, session = await opened(browser, site, "slow", gateway=0)
    two = await browser.tab(f"{site.gateways[1].url}/#{session}")
    await two.live()
    await one.say("600 0.05")
    await two.shows(1, "5 ")
    await one.say("1 0")
    await two.page.get_by_text("One turn waits in the queue.").wait_for()
    await two.button("Interrupt").click()
    for tab in (one, two):
        await tab.ended(1, "interrupted")
        await tab.button("Resume the queue").wait_for()
    assert await one.texts(1) == await two.texts(1)
    await one.button("Resume the queue").click()
    for tab in (one, two):
        await tab.ended(2, "completed")
        assert await tab.texts(2) == "0 "
        assert not await tab.button("Resume the queue").is_visible()
    for tab in (one, two):
        assert_grew(await tab.witnessed(), f"{await tab.texts(1)}|0 ")


async def test_a_gateway_dies_and_the_page_comes_back_by_itself(
    browser: Browser, site: Cluster, tmp_path: Path
) -> None:
    tab, session = await opened(browser, site, "counting")
    other = await browser.tab(f"{site.gateways[1].url}/#{session}")
    gone = tmp_path / "enough"
    await tab.say(str(gone))
    await tab.shows(1, " 10 ")
    await site.gateways[0].kill()
    await tab.page.get_by_role("status").get_by_text("Connection lost").wait_for()
    # Sent while nobody listens: kept, sent again under the same key, accepted once.
    await tab.say(str(gone))
    shown = len((await other.texts(1)).split())
    await other.shows(1, f" {shown + 20} ")
    await site.gateways[0].start()
    await tab.live()
    await tab.shows(1, f" {shown + 20} ")
    gone.touch()
    await tab.ended(2, "completed")
    final = "|".join(await said(site.client(1), session))
    await other.ended(2, "completed")
    for watching in (tab, other):
        assert await watching.texts(1) == final
        assert_grew(await watching.witnessed(), final)
    assert len((await site.client(1).json("GET", f"/v1/sessions/{session}/turns"))["items"]) == 2


async def test_approve_and_refuse_by_keyboard_only(browser: Browser, site: Cluster, tmp_path: Path) -> None:
    """From the first key in a fresh page: skip link, message, answers with changed arguments and a note."""
    tab, session = await opened(browser, site, "approver")
    watcher = await browser.tab(f"{site.gateways[1].url}/#{session}")
    keys = tab.page.keyboard
    await tab.tab_to("Skip to the message box")
    await keys.press("Enter")
    await keys.type(json.dumps({"directory": str(tmp_path), "calls": 2, "rounds": 1}))
    await keys.press("Enter")
    await tab.ended(1, "waits for a person")
    await tab.page.get_by_role("form", name="Approval needed: act").nth(1).wait_for()
    await tab.tab_to("Arguments", "Shift+Tab")
    await tab.tab_to("Refuse")
    await tab.tab_to("Note (optional)", "Shift+Tab")
    await keys.type("not that one")
    await tab.tab_to("Refuse")
    await keys.press("Space")
    await watcher.page.get_by_text("act: refused by local (not that one)").wait_for()
    await tab.page.get_by_text("act: refused by local (not that one)").wait_for()
    # Focus stays in the turn: the next question is the next stop.
    focused = await tab.page.evaluate("document.activeElement.closest('article') !== null")
    assert focused
    await tab.page.get_by_role("textbox", name="Arguments").focus()
    await keys.press("Control+A")
    await keys.type("no object")
    await tab.tab_to("Approve")
    await keys.press("Enter")
    await tab.page.get_by_role("alert").get_by_text("must be a JSON object").wait_for()
    await tab.tab_to("Arguments", "Shift+Tab")
    await keys.press("Control+A")
    await keys.type(json.dumps({"directory": str(tmp_path), "what": "as I say"}))
    await tab.tab_to("Approve")
    await keys.press("Enter")
    for each in (tab, watcher):
        await each.ended(1, "completed")
        await each.shows(1, "did as I say")
    assert lines(tmp_path, "ran") == ["as I say"], "the refused one never ran"
    paused = next(e for e in await site.client().events(session) if e["type"] == "turn.paused")
    asked = {need["item_id"] for need in paused["data"]["requirements"]}
    answers = [answer for body in tab.bodies["continue"] for answer in json.loads(body)["answers"]]
    assert {answer["item_id"] for answer in answers} == asked, "each answer names its question"


async def test_regenerate_fork_cancel_and_a_failed_turn(browser: Browser, site: Cluster, tmp_path: Path) -> None:
    tab, session = await opened(browser, site, "echo")
    await tab.say("first words")
    await tab.ended(1, "completed")
    await tab.button("Regenerate", tab.turn(1)).click()
    await tab.ended(2, "completed")
    await tab.turn(1).get_by_text("superseded by a newer answer").wait_for()
    await tab.turn(2).get_by_text("answers again turn 1").wait_for()
    await tab.button("Fork …", tab.turn(1)).click()
    dialog = tab.page.get_by_role("dialog", name="Fork turn 1")
    await dialog.get_by_role("combobox", name="Go on from").select_option("before its message")
    await dialog.get_by_role("textbox", name="Message of the new turn (optional)").fill("other words")
    await tab.button("Fork", dialog).click()
    await tab.ended(3, "completed")
    await tab.turn(3).get_by_text("forked from turn 1").wait_for()
    assert await tab.texts(3) == "other words "
    found = (await site.client().json("GET", f"/v1/sessions/{session}/turns"))["items"]
    turns = {turn["enqueue_sequence"]: turn for turn in found}
    assert turns[1]["superseded_by"] == turns[2]["turn_id"]
    assert [turns[number]["forked_from"]["turn_id"] for number in (2, 3)] == [turns[1]["turn_id"]] * 2

    failing, _ = await opened(browser, site, "broken")
    await failing.say("one")
    await failing.ended(1, "failed")
    await failing.turn(1).get_by_text("agent_error").wait_for()

    holding, _ = await opened(browser, site, "hold")
    await holding.say(str(tmp_path / "go"))
    await holding.shows(1, "holding ")
    await holding.say("never")
    await holding.button("Cancel", holding.turn(2)).click()
    await holding.ended(2, "cancelled")
    (tmp_path / "go").touch()
    await holding.ended(1, "completed")


async def test_tool_calls_are_shown_with_arguments_and_results(browser: Browser, site: Cluster) -> None:
    tab, _ = await opened(browser, site, "tools")
    await tab.say("tides")
    await tab.ended(1, "completed")
    await tab.turn(1).get_by_text("lookup: done").click()
    await tab.turn(1).get_by_text('{"q":"tides"}').wait_for()
    await tab.turn(1).get_by_text("found tides").wait_for()
    assert await tab.texts(1) == "Looking found it"


async def test_what_people_and_models_write_is_text(browser: Browser, site: Cluster) -> None:
    """Markup is shown, never made; the policy would stop it too."""
    tab, _ = await opened(browser, site, "echo")
    hostile = (
        "<img src=x onerror=window.broken=1> <script>window.broken=1</script> [a](javascript:broken=1) &lt; ü漢👩‍👩‍👧"
    )
    await tab.say(hostile)
    await tab.ended(1, "completed")
    assert (await tab.texts(1)).strip() == hostile
    assert await tab.turn(1).locator(".input").text_content() == hostile
    assert await tab.page.locator("#turns img, #turns script, #turns a").count() == 0
    assert await tab.page.evaluate("window.broken") is None
    answer = await site.client().http.get("/", headers={"Accept": "text/html"})
    policy = answer.headers["content-security-policy"]
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy
    # The name of a session is made of its first message, and is text as well.
    await tab.page.get_by_role("heading", name="<img src=x").wait_for()


async def test_sessions_are_made_listed_and_changed_between(browser: Browser, site: Cluster) -> None:
    tab, first = await opened(browser, site, "echo")
    await tab.say("in the first")
    await tab.ended(1, "completed")
    sessions = tab.page.get_by_role("navigation", name="Sessions")
    await sessions.get_by_role("combobox", name="Agent").select_option("tools")
    await tab.button("New session", sessions).click()
    await tab.page.wait_for_url(lambda url: first not in url)
    await tab.live()
    assert await tab.page.get_by_role("article").count() == 0
    await tab.say("in the second")
    await tab.ended(1, "completed")
    assert await tab.texts(1) == "Looking found it"
    await sessions.get_by_role("link", name="in the first").click()
    await tab.shows(1, "in the first ")
    assert await sessions.locator("[aria-current]").all_text_contents() == ["in the first"]


async def test_another_epoch_reloads_the_page(browser: Browser, site: Cluster) -> None:
    """The store was restored from a backup: nothing that the page remembers counts."""
    tab, _ = await opened(browser, site, "echo")
    await tab.say("before")
    await tab.ended(1, "completed")
    await tab.page.evaluate("window.before = true")
    async with site.connection() as connection:
        await connection.execute("UPDATE store_meta SET epoch = epoch + 1")
    for agent in site.agents:
        await agent.restart()
    await site.ready(site.agents)
    async with tab.page.expect_event("load"):
        await site.gateways[0].restart()
    assert await tab.page.evaluate("window.before") is None
    await tab.live()
    await tab.ended(1, "completed")
    await site.ready(site.gateways)
