"""What a text is found by: its words, and of scripts that write without spaces every character and every pair of
neighbours. The same cutting is used for texts and for questions."""

import re
import unicodedata

import msgspec

# Han, kana, hangul, bopomofo and the compatibility forms that NFKC leaves.
_DENSE = (
    "\u1100-\u11ff\u2e80-\u2fdf\u3005-\u3007\u3041-\u30ff\u3105-\u312f\u3130-\u318f\u31a0-\u31bf\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\U0001b000-\U0001b16f\U00020000-\U0003ffff"
)
_RUN = re.compile(rf"([{_DENSE}]+)|((?:(?![{_DENSE}])\w)+)")
_LONGEST_WORD = 64


class Question(msgspec.Struct, frozen=True):
    """`terms`: all must be there. `runs`: pieces that must stand in the folded text as they are, since pairs that are
    there need not be neighbours."""

    terms: list[str]
    runs: list[str]


def fold(text: str) -> str:
    """Compatibility form without case."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


def terms(folded: str) -> list[str]:
    """Terms of a folded text, each once, sorted."""
    found: set[str] = set()
    for dense, word in _RUN.findall(folded):
        if dense:
            found.update(dense)
            found.update(dense[at : at + 2] for at in range(len(dense) - 1))
        else:
            found.add(word[:_LONGEST_WORD])
    return sorted(found)


def question(text: str) -> Question:
    """What a text must have to be an answer. Without any term where nothing in it can be looked for."""
    wanted: set[str] = set()
    runs: list[str] = []
    for dense, word in _RUN.findall(fold(text)):
        if not dense:
            wanted.add(word[:_LONGEST_WORD])
        elif len(dense) == 1:
            wanted.add(dense)
        else:
            wanted.update(dense[at : at + 2] for at in range(len(dense) - 1))
            if len(dense) > 2:
                runs.append(dense)
    return Question(sorted(wanted), runs)
