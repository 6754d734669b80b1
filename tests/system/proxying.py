"""nginx of the Debian package in front of gateways, with a configuration of the test's own."""

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from tests.support.waiting import PATIENCE, eventually
from tests.system.tools import HERE, nginx

DEPLOY = HERE.parents[1] / "deploy" / "nginx"

_MAIN = """
{user}
worker_processes 1;
pid {directory}/nginx.pid;
error_log {directory}/error.log warn;
{shutdown}
events {{ worker_connections 512; }}
http {{
    client_body_temp_path {directory}/body;
    proxy_temp_path {directory}/proxy;
    fastcgi_temp_path {directory}/fastcgi;
    uwsgi_temp_path {directory}/uwsgi;
    scgi_temp_path {directory}/scgi;
    access_log {directory}/access.log;
{site}
}}
"""


def plain(ports: Sequence[int], port: int, *directives: str) -> str:
    """What somebody writes who knows nothing of streams: a proxy_pass, and nginx's defaults for the rest."""
    servers = " ".join(f"server 127.0.0.1:{one};" for one in ports)
    said = " ".join(directives)
    return f"""
    upstream gateways {{ {servers} }}
    server {{
        listen 127.0.0.1:{port};
        location / {{ proxy_pass http://gateways; proxy_set_header Host $http_host; {said} }}
    }}
    """


def shipped(ports: Sequence[int], port: int) -> str:
    """deploy/nginx/turnlog.conf, with these gateways and this port in it."""
    return _adapted("turnlog.conf", ports, ("listen 80;", f"listen 127.0.0.1:{port};"))


def edge(ports: Sequence[int], port: int, tls: Path) -> str:
    """deploy/nginx/edge.conf likewise, with the certificate of that directory."""
    return _adapted(
        "edge.conf", ports, ("listen 443 ssl", f"listen 127.0.0.1:{port} ssl"), ("/etc/nginx/tls/", f"{tls}/")
    )


def _adapted(name: str, ports: Sequence[int], *changes: tuple[str, str]) -> str:
    text = (DEPLOY / name).read_text()
    servers = "\n".join(f"    server 127.0.0.1:{one} max_fails=1 fail_timeout=2s;" for one in ports)
    gateway = ("    server gateway:8080 max_fails=1 fail_timeout=2s;", servers)
    for old, new in (gateway, ("/dev/stdout", "access.log"), *changes):
        assert old in text, f"{old!r} in {name}"
        text = text.replace(old, new)
    return text


def certificate(directory: Path) -> None:
    """A self-signed one for this machine."""
    subject = ["-subj", "/CN=localhost", "-days", "2"]
    files = ["-keyout", str(directory / "privkey.pem"), "-out", str(directory / "fullchain.pem")]
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *subject, *files]
    subprocess.run(words, check=True, capture_output=True)


class Proxy:
    """A running nginx. `port` is where it listens."""

    def __init__(self, directory: Path, port: int) -> None:
        self._directory = directory
        self.port = port
        self.url = f"http://127.0.0.1:{port}"

    async def reload(self) -> None:
        """As a deploy of its configuration does: new workers, and the old ones' connections are cut after a while."""
        assert await self.command("-s", "reload") == 0

    async def command(self, *words: str) -> int:
        """Run the program on this configuration; its exit code."""
        process = await asyncio.create_subprocess_exec(
            nginx() or "nginx",
            "-p",
            str(self._directory),
            "-c",
            str(self._directory / "nginx.conf"),
            "-e",
            str(self._directory / "error.log"),
            *words,
        )
        async with asyncio.timeout(PATIENCE):
            return await process.wait()


@asynccontextmanager
async def proxying(directory: Path, site: str, port: int, *, cut_seconds: float | None = None) -> AsyncIterator[Proxy]:
    """nginx with that site. `cut_seconds`: how long old workers live after a reload."""
    shutdown = "" if cut_seconds is None else f"worker_shutdown_timeout {int(cut_seconds * 1000)}ms;"
    user = "user root;" if os.geteuid() == 0 else ""
    (directory / "nginx.conf").write_text(_MAIN.format(directory=directory, site=site, shutdown=shutdown, user=user))
    proxy = Proxy(directory, port)
    assert await proxy.command() == 0, (directory / "error.log").read_text()
    try:
        yield proxy
    finally:
        pid = int((directory / "nginx.pid").read_text())
        await proxy.command("-s", "stop")

        async def gone() -> bool:
            return not Path(f"/proc/{pid}").exists()

        await eventually(gone, "nginx has ended")
