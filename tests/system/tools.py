"""What of the machine a test needs, and what is said where it is not there."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
MODULES = HERE / "node_modules"


def _node_major() -> int:
    node = shutil.which("node")
    if node is None:
        return 0
    said = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout
    found = re.match(r"v(\d+)", said)
    return int(found[1]) if found else 0


def nginx() -> str | None:
    """The program; it is not on everybody's path."""
    return shutil.which("nginx") or shutil.which("/usr/sbin/nginx")


needs_chromium = pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium is not installed")
needs_nginx = pytest.mark.skipif(nginx() is None, reason="nginx is not installed")
needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
needs_eventsource = pytest.mark.skipif(
    _node_major() < 20 or not (MODULES / "eventsource").is_dir(),
    reason="Node 20 or newer, or its modules of tests/system/package-lock.json, are not installed",
)
needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
needs_axe = pytest.mark.skipif(not (MODULES / "axe-core").is_dir(), reason="axe-core of package-lock.json is missing")
