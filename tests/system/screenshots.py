"""The README's pictures of the page: `make screenshots`. A running installation, a real browser, nothing retouched."""

import asyncio
from pathlib import Path
from typing import Any

from infra.embedded.place import free_port
from tests.support.client import Client
from tests.support.commands import up
from tests.support.places import server_directory
from tests.system.browsing import Browser, browsing
from tests.system.tools import HERE

IMAGES = HERE.parents[1] / "docs" / "images"
WIDE: dict[str, Any] = {"viewport": {"width": 1000, "height": 800}, "color_scheme": "light"}
PHONE: dict[str, Any] = {"viewport": {"width": 390, "height": 760}, "color_scheme": "dark", "has_touch": True}


async def take() -> None:
    """All of them, from an installation of their own."""
    with server_directory() as home:
        port = free_port()
        agents = ("--agent", "shop=tests.system.agents:shop", "--agent", "demo=services.worker.demo:agent")
        async with up(home, port, *agents, cwd=HERE.parents[1]) as running, browsing() as browser:
            await running.ready()
            client = Client(running.url)
            try:
                await _pictures(browser, client, running.url)
            finally:
                await client.close()


async def _pictures(browser: Browser, client: Client, url: str) -> None:
    for title in ("Tides of the North Sea", "Order 1040", "Travel expenses"):
        await client.create("demo", title=title)
    session = await client.create("shop", title="Order 1041")
    wide = await browser.tab(f"{url}/#{session}", person="wide", **WIDE)
    await wide.live()
    await wide.say("The jacket of order 1041 is too small. Can I have my money back?")
    await wide.ended(1, "waits for a person")
    await wide.turn(1).get_by_text("find_order: done").click()
    phone = await browser.tab(f"{url}/#{session}", person="phone", **PHONE)
    await phone.ended(1, "waits for a person")
    await _save(wide.page, IMAGES / "page-light.png")
    await phone.turn(1).get_by_role("button", name="Approve").scroll_into_view_if_needed()
    await _save(phone.page, IMAGES / "page-phone-dark.png")


async def _save(page: Any, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    await page.screenshot(path=str(path), caret="hide", animations="disabled")
    print(f"{path.name}: {path.stat().st_size // 1024} KiB")


if __name__ == "__main__":
    asyncio.run(take())
