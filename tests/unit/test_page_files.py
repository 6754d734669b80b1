"""The page's files by themselves: what they name is there, and nothing of them can make markup of a text."""

import re
from pathlib import Path

import pytest

from services.gateway.routes.page import CONTENT_SECURITY_POLICY, DIRECTORY

SCRIPTS = sorted(DIRECTORY.glob("*.js"))
HTML = (DIRECTORY / "index.html").read_text(encoding="utf-8")


def test_what_they_name_is_there() -> None:
    named = set(re.findall(r'(?:from |src=|href=)"/page/([^"]+)"', HTML + "".join(map(Path.read_text, SCRIPTS))))
    assert named >= {"main.js", "page.css", "reducer.js"}
    assert named == {path.name for path in DIRECTORY.iterdir() if path.name != "index.html"}


def test_the_scripts_name_elements_that_there_are() -> None:
    there = set(re.findall(r'\bid="([^"]+)"', HTML))
    asked = set(re.findall(r'\b(?:at|submits)\("([^"]+)"', (DIRECTORY / "main.js").read_text(encoding="utf-8")))
    assert asked
    assert asked - there == set()


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_no_text_becomes_markup_or_code(script: Path) -> None:
    markup = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|srcdoc"
    code = r"\beval\b|new Function|setTimeout\(['\"]"
    assert not re.search(f"{markup}|{code}", script.read_text(encoding="utf-8"))


def test_nothing_is_inline_and_nothing_comes_from_elsewhere() -> None:
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\bstyle=|\bon[a-z]+=|https?://|//", HTML)
    assert "unsafe" not in CONTENT_SECURITY_POLICY
    assert CONTENT_SECURITY_POLICY.startswith(
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'"
    )
