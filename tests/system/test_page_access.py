"""The page where the gateway asks who one is: a token pasted once, streams by ticket and cookie."""

import re
import time

import pytest

from tests.support.cluster import Cluster
from tests.support.gateways import JWT_SECRET, user_token
from tests.system.browsing import Browser, Tab
from tests.system.tools import needs_chromium

pytestmark = [pytest.mark.system, needs_chromium, pytest.mark.asyncio(loop_scope="module")]


@pytest.fixture(scope="module")
def site_settings() -> dict[str, str]:
    return {"TURNLOG_AUTH": "jwt", "TURNLOG_JWT_SECRET": JWT_SECRET}


async def come_in(tab: Tab, token: str) -> None:
    """Paste the token."""
    dialog = tab.page.get_by_role("dialog", name="Who are you?")
    await dialog.get_by_label("User token").fill(token)
    await tab.button("Use the token", dialog).click()


async def test_a_token_is_pasted_once_and_each_new_stream_has_its_own_ticket(browser: Browser, site: Cluster) -> None:
    ann = user_token("ann")
    session = await site.client(0, ann).create("counting", external_id="a thread of mine")
    tab = await browser.tab(f"{site.gateways[0].url}/#{session}")
    await come_in(tab, ann)
    await tab.live()
    await tab.say("/dev/null/never")
    await tab.shows(1, "3 ")
    # A gateway that dies: EventSource comes back by itself, with the spent ticket and its cookie.
    await site.gateways[0].restart()
    await tab.live()
    await tab.streams()
    assert len(tickets(tab)) == 1
    # The cookie is lost too: refused, EventSource gives up, and the page makes a new one with a new ticket.
    await (await browser.person()).clear_cookies()
    await site.gateways[0].restart()
    await tab.page.wait_for_event("request", predicate=lambda request: request.url.endswith("/stream-ticket"))
    await tab.live()
    opened = streams(tab)
    assert len(set(re.findall(r"ticket=(\S+)", " ".join(opened)))) == len(tickets(tab)) == 2
    assert "after_sequence=0" not in opened[-1], "it goes on where it was"
    # A refresh of this tab needs no pasting.
    await tab.page.reload()
    await tab.live()
    await tab.button("Interrupt").click()
    await tab.ended(1, "interrupted")
    assert not [url for url in tab.requests if ann in url], "the token stands in no URL"
    assert await tab.page.evaluate("document.cookie + JSON.stringify(localStorage)") == "{}"
    # Another tab is another place: what one tab keeps, the next does not have.
    other = await browser.tab(f"{site.gateways[1].url}/#{session}")
    await other.page.get_by_role("dialog", name="Who are you?").wait_for()
    assert ann not in site.logs()
    assert "ticket=" not in site.logs()


def tickets(tab: Tab) -> list[str]:
    """Requests for one."""
    return [request for request in tab.requests if request.startswith("POST") and request.endswith("/stream-ticket")]


def streams(tab: Tab) -> list[str]:
    """Requests of EventSource."""
    return [request for request in tab.requests if "/events?" in request]


async def test_a_token_that_expires_is_asked_for_and_the_next_goes_on(browser: Browser, site: Cluster) -> None:
    long = user_token("bea")
    session = await site.client(0, long).create("echo")
    await site.client(0, long).run(session, "before")
    for seconds in (4, 15, 45):
        tab = await browser.tab(f"{site.gateways[0].url}/#{session}")
        refused = tab.page.get_by_text("The token is not, or no longer, accepted.")
        await come_in(tab, user_token("bea", expires=int(time.time()) + seconds))
        shown = tab.page.get_by_role("article", name="Turn 1, completed", exact=True)
        await shown.or_(refused).first.wait_for()
        if await shown.count():
            break
        # So slow a machine needs a token that lasts longer.
        await tab.page.close()
    await tab.page.evaluate("window.kept = document.querySelector('.turn')")
    await refused.wait_for()
    await come_in(tab, long)
    await tab.live()
    await tab.say("after")
    await tab.ended(2, "completed")
    assert await tab.page.evaluate("window.kept === document.querySelector('.turn')"), "what was there stayed"
    assert "after_sequence=0" not in streams(tab)[-1]


async def test_somebody_elses_session_is_not_there_and_a_token_can_be_forgotten(
    browser: Browser, site: Cluster
) -> None:
    cid = user_token("cid")
    session = await site.client(0, cid).create("echo", title="Of Cid")
    tab = await browser.tab(f"{site.gateways[0].url}/#{session}")
    await come_in(tab, user_token("dan"))
    await tab.page.get_by_role("status").get_by_text("This session is not there.").wait_for()
    await tab.button("User token …").click()
    await come_in(tab, cid)
    await tab.live()
    await tab.page.get_by_role("heading", name="Of Cid").wait_for()
    await tab.button("User token …").click()
    await tab.button("Forget the token").click()
    await tab.page.get_by_text("This gateway asks for a user’s token.").wait_for()
    assert await tab.page.evaluate("sessionStorage.length") == 0
    assert await tab.page.get_by_role("link", name="Of Cid").count() == 0
