"""A person at the page: a headless Chromium, its tabs, and what they show."""

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.waiting import PATIENCE, eventually

# Keeps each state of all texts on the screen, so that a test can see what a person saw in between.
_WITNESS = """
window.witnessed = [];
const look = () => {
  const said = [...document.querySelectorAll("#turns .text")].map((node) => node.textContent).join("|");
  if (window.witnessed.at(-1) !== said) window.witnessed.push(said);
};
new MutationObserver(look).observe(document, { subtree: true, childList: true, characterData: true });
"""


class Tab:
    """One page. Everything is found as assistive technology finds it: by role and name."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.requests: list[str] = []
        self.bodies: dict[str, list[str]] = {}
        """What was sent, by the last step of the path."""

        page.on("request", self._asked)

    def _asked(self, request: Any) -> None:
        self.requests.append(f"{request.method} {request.url}")
        if request.post_data:
            self.bodies.setdefault(request.url.rpartition("/")[2], []).append(request.post_data)

    def button(self, name: str, within: Any = None) -> Any:
        return (within or self.page).get_by_role("button", name=name, exact=True)

    @property
    def input(self) -> Any:
        return self.page.get_by_role("textbox", name="Message", exact=True)

    def turn(self, number: int) -> Any:
        """The article of that turn, whatever its status."""
        return self.page.get_by_role("article", name=f"Turn {number},")

    async def live(self) -> None:
        """The stream is open."""
        await self.page.get_by_role("status").get_by_text("Live", exact=True).wait_for()

    async def say(self, text: str) -> None:
        """Type it and send it."""
        await self.input.fill(text)
        await self.input.press("Enter")

    async def ended(self, number: int, status: str) -> None:
        """Wait until the turn is shown with that status."""
        await self.page.get_by_role("article", name=f"Turn {number}, {status}", exact=True).wait_for()

    async def texts(self, number: int) -> str:
        """What the agent says in that turn."""
        return "".join(await self.turn(number).locator(".text").all_text_contents())

    async def shows(self, number: int, text: str) -> None:
        """Wait until the turn says that."""

        async def found() -> bool:
            return text in await self.texts(number)

        await eventually(found, f"turn {number} says {text!r}")

    async def witnessed(self) -> list[str]:
        """Each state of all texts since the page was loaded."""
        states: list[str] = await self.page.evaluate("window.witnessed")
        return states

    async def streams(self, states: int = 5) -> None:
        """Wait until the texts were seen to grow in so many steps since the page was loaded."""

        async def grown() -> bool:
            return len(await self.witnessed()) >= states

        await eventually(grown, f"{states} states of the text")

    async def tab_to(self, name: str, key: str = "Tab") -> None:
        """Press the key until what has that name has the focus."""
        focused = "document.activeElement?.labels?.[0]?.textContent ?? document.activeElement?.textContent ?? ''"
        for _ in range(60):
            await self.page.keyboard.press(key)
            if str(await self.page.evaluate(focused)).strip() == name:
                return
        raise AssertionError(f"no way to {name!r} by {key}")

    async def fits(self) -> bool:
        """Nothing is wider than the window."""
        root = "document.documentElement"
        return bool(await self.page.evaluate(f"{root}.scrollWidth <= {root}.clientWidth"))


class Browser:
    """`tab(url)` opens one; tabs share what a person's tabs share, unless `person` differs."""

    def __init__(self, driven: Any) -> None:
        self._driven = driven
        self._people: dict[str, Any] = {}
        self._complaints: list[str] = []

    async def person(self, name: str = "", **looks: Any) -> Any:
        """Their browser context."""
        if name not in self._people:
            context = await self._driven.new_context(**looks)
            context.set_default_timeout(PATIENCE * 1000)
            await context.add_init_script(_WITNESS)
            self._people[name] = context
        return self._people[name]

    async def tab(self, url: str, person: str = "", **looks: Any) -> Tab:
        """A new tab that has loaded the URL."""
        page = await (await self.person(person, **looks)).new_page()
        page.on("pageerror", lambda error: self._complaints.append(f"error: {error}"))
        page.on("console", self._hear)
        tab = Tab(page)
        await page.goto(url)
        return tab

    async def forget(self) -> list[str]:
        """Close everything; what the pages complained of."""
        for context in self._people.values():
            await context.close()
        self._people.clear()
        complaints, self._complaints = self._complaints, []
        return complaints

    def _hear(self, message: Any) -> None:
        # A gateway that is away makes failed requests, which are no fault of the page.
        if message.type in ("error", "warning") and "Failed to load resource" not in message.text:
            self._complaints.append(f"{message.type}: {message.text}")


@asynccontextmanager
async def browsing() -> AsyncIterator[Browser]:
    """Debian's Chromium, driven by Playwright; skips where either is missing."""
    playwright = pytest.importorskip("playwright.async_api", reason="playwright of requirements/system.lock is missing")
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("chromium is not installed")
    root = ["--no-sandbox"] if os.geteuid() == 0 else []
    async with playwright.async_playwright() as driver:
        driven = await driver.chromium.launch(executable_path=program, args=[*root, "--disable-dev-shm-usage"])
        try:
            yield Browser(driven)
        finally:
            await driven.close()


def axe(modules: Path) -> str:
    """The source of the accessibility checker."""
    return (modules / "axe-core" / "axe.min.js").read_text()
