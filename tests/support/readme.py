"""What README.md tells people to run, as it stands there."""

import re
from pathlib import Path

README = Path(__file__).resolve().parents[2] / "README.md"

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(language: str, heading: str) -> list[str]:
    """The fenced blocks of that language under the heading that begins so, in order."""
    text = README.read_text(encoding="utf-8")
    sections = re.split(r"^#+ (?=[A-Z0-9])", text, flags=re.MULTILINE)
    section = next(part for part in sections if part.startswith(heading))
    return [found[2].rstrip("\n") for found in _BLOCK.finditer(section) if found[1] == language]


def at_ports(command: str, port: int) -> str:
    """The same command for gateways on `port` and the one after it."""
    return command.replace("127.0.0.1:8080", f"127.0.0.1:{port}").replace("127.0.0.1:8081", f"127.0.0.1:{port + 1}")
