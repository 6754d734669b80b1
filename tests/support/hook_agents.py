"""Agents with hooks, as users would write them. What their hooks do stands in files below HOOK_DIRECTORY."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from infra.nats.work_queue import HookQueue, Job
from turnlog import HookRun, Refused, evaluation, guardrail, hook, hooked, webhook

DIRECTORY = Path(os.environ.get("TEST_HOOK_DIRECTORY", "/nowhere"))
RECEIVER = os.environ.get("TEST_HOOK_RECEIVER", "http://127.0.0.1:9/")
SECRET = "a secret that both sides know"


def write(name: str, run: HookRun) -> None:
    with (DIRECTORY / name).open("a") as file:
        file.write(f"{run.job_id} {run.attempt} {run.status} {run.input} -> {run.output}\n")


async def echo(turn: Any) -> AsyncIterator[str]:
    for word in turn.input.split():
        yield word + " "


@guardrail
async def no_secrets(run: HookRun) -> None:
    if "secret" in run.input:
        raise Refused("Please do not send secrets.")


def louder(run: HookRun) -> str:
    return run.input.upper()


@hook(background=True)
def audit(run: HookRun) -> None:
    write("audit", run)


@evaluation(background=True)
async def judge(run: HookRun) -> dict[str, Any]:
    return {"score": len(run.output or ""), "job": run.job_id}


watched = hooked(
    echo,
    pre=[no_secrets, louder],
    post=[audit, judge, webhook(RECEIVER, secret=SECRET)],
)

doubled = hooked(echo, pre=[louder], post=[hook(name="louder")(audit)])


@hook(background=True)
async def holding(run: HookRun) -> None:
    """Goes on when the file `go` is there."""
    write("began", run)
    while not (DIRECTORY / "go").exists():
        await asyncio.sleep(0.02)
    write("ended", run)


held = hooked(echo, post=[holding])


@hook(background=True)
async def failing(run: HookRun) -> None:
    write("tries", run)
    raise RuntimeError("as the test wanted")


unlucky = hooked(echo, post=[failing])

_tell = HookQueue.tell


def _die_once(queue: HookQueue, job: Job, *, first: bool) -> None:
    """A worker that is killed between the commit that schedules a job and its publication: once, if the test wants."""
    mark = DIRECTORY / "die"
    if first and mark.exists():
        mark.unlink()
        os._exit(9)
    _tell(queue, job, first=first)


if DIRECTORY.exists():
    HookQueue.tell = _die_once  # type: ignore[assignment, method-assign]
