"""The page for everybody: what a screen reader is told, what a checker finds, light and dark, wide and narrow."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster import Cluster
from tests.system.browsing import Browser, Tab, axe
from tests.system.tools import MODULES, needs_axe, needs_chromium

pytestmark = [pytest.mark.system, needs_chromium, pytest.mark.asyncio(loop_scope="module")]

PHONE = {"width": 390, "height": 780}
WIDE = {"width": 1100, "height": 780}


async def populated(browser: Browser, site: Cluster, directory: Path, **looks: Any) -> Tab:
    """A session with a tool call, an ended turn, one that asks and one that waits."""
    client = site.client()
    session = await client.create("approver", title="Everything at once")
    work = json.dumps({"directory": str(directory), "calls": 1, "rounds": 1})
    await client.submit(session, work)
    await client.submit(session, work)
    tab = await browser.tab(f"{site.gateways[0].url}/#{session}", **looks)
    await tab.button("Approve", tab.turn(1)).click()
    await tab.ended(1, "completed")
    await tab.ended(2, "waits for a person")
    await client.submit(session, "waits")
    await tab.page.get_by_text("One turn waits in the queue.").wait_for()
    await tab.turn(1).get_by_text("act: done").click()
    return tab


async def test_what_a_screen_reader_is_told(browser: Browser, site: Cluster, tmp_path: Path) -> None:
    """Landmarks, names and states of everything there is; a finished text is said once."""
    tab = await populated(browser, site, tmp_path)
    told = await tab.page.locator("body").aria_snapshot()
    for line in (
        '- link "Skip to the message box"',
        '- navigation "Sessions"',
        '- heading "Turnlog" [level=1]',
        '- combobox "Agent"',
        '- button "New session"',
        '- link "Everything at once"',
        '- heading "Everything at once" [level=2]',
        "- status: Live",
        '- region "Conversation"',
        '- article "Turn 1, completed"',
        '- button "Regenerate"',
        '- button "Fork …"',
        '- article "Turn 2, waits for a person"',
        'form "Approval needed: act"',
        '- textbox "Arguments"',
        '- textbox "Note (optional)"',
        '- button "Approve"',
        '- button "Refuse"',
        '- article "Turn 3, waits in the queue"',
        '- button "Cancel"',
        '- textbox "Message"',
        '- button "Send"',
        "- alert",
    ):
        assert line in told, told
    spoken = await tab.page.locator("#announcer").text_content()
    assert spoken.count("Done: did 0.0") == 1
    assert "approval needed for act" in spoken


@needs_axe
@pytest.mark.parametrize(("scheme", "viewport"), [("light", WIDE), ("dark", PHONE)], ids=["light-wide", "dark-phone"])
async def test_a_checker_finds_nothing(
    browser: Browser, site: Cluster, tmp_path: Path, scheme: str, viewport: dict[str, int]
) -> None:
    """axe-core, contrast included, with dialogs open too; nothing is wider than a phone."""
    tab = await populated(browser, site, tmp_path, color_scheme=scheme, viewport=viewport)
    await tab.page.evaluate(axe(MODULES))
    if viewport is PHONE:
        await tab.button("Sessions").click()
        await tab.page.get_by_role("link", name="Everything at once").first.wait_for()
    assert await found(tab) == []
    assert await tab.fits()
    if viewport is PHONE:
        await tab.button("Sessions").click()
    await tab.button("Fork …", tab.turn(1)).click()
    await tab.page.get_by_role("dialog", name="Fork turn 1").wait_for()
    assert await found(tab) == []


async def found(tab: Tab) -> list[str]:
    """What the checker objects to."""
    result = await tab.page.evaluate("axe.run()")
    return [
        f"{fault['id']}: {node['target']} {node.get('failureSummary', '')}"
        for fault in result["violations"]
        for node in fault["nodes"]
    ]
