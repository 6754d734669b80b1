"""What README.md points to is there. (Its commands are run by tests/acceptance/test_up.py and tests/system/.)"""

import re

from tests.support.readme import README


def test_every_link_to_a_file_leads_somewhere() -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", README.read_text(encoding="utf-8")):
        assert (README.parent / target).exists(), target


def test_every_guarantee_names_a_test_that_exists() -> None:
    named = re.findall(r"\[(test_\w+)\]\(([^)]+)\)", README.read_text(encoding="utf-8"))
    assert len(named) > 15
    for test, place in named:
        assert f"def {test}(" in (README.parent / place).read_text(encoding="utf-8"), (test, place)
