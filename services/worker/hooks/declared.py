"""How users declare hooks; they import all of it from the facade `turnlog`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, overload

from domain.parts import FilePart, Part
from domain.runtime import Attachments, NoAttachments

End = Literal["completed", "failed", "interrupted"]


class Refused(Exception):
    """What a guardrail raises: the turn fails with `input_refused` and this text, which people see and which is stored
    for ever."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HookRun:
    """What a hook is told. `output` is what the agent said, in a post-hook; `status` is `running` in line, else how the
    turn ended. A job in the background has a `job_id`, the same at each try (`attempt` counts them): it may run more
    than once, so hand the id on to whatever must happen once."""

    session_id: str
    turn_id: str
    agent_id: str
    hook: str
    input: str
    parts: Sequence[Part]
    output: str | None = None
    status: Literal["running", "completed", "failed", "interrupted"] = "running"
    error_code: str | None = None
    context_version: str | None = None
    job_id: str | None = None
    attempt: int = 1
    attachments: Attachments = field(default=NoAttachments(), repr=False, compare=False)

    async def read(self, part: FilePart) -> bytes:
        """The content of a file among the parts. Raises where it is gone, or too large."""
        return await self.attachments.read(part)

    async def keep(self, content: bytes, *, name: str | None = None, media_type: str | None = None) -> FilePart:
        """Store a file, for a pre-hook to return among the parts of the input."""
        return await self.attachments.keep(content, name=name, media_type=media_type)


HookFunction = Callable[[HookRun], Any]
"""Plain or async. A plain one runs in a thread. In line, a pre-hook that returns text or parts rewrites the input; what
a job or an evaluation returns is kept as its result (JSON, at most 16 KiB)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Hook:
    """A hook with its options; made by `hook`, `guardrail`, `evaluation` and `webhook`. `background` None: as
    `run_hooks_in_background` of its agent says. `after`: the ends of a turn that a job in the background follows."""

    function: HookFunction
    name: str
    background: bool | None = None
    guardrail: bool = False
    evaluation: bool = False
    after: Sequence[End] | None = None

    def __call__(self, run: HookRun) -> Any:
        """The function alone, for tests of it."""
        return self.function(run)


@dataclass(frozen=True, kw_only=True, slots=True)
class Hooked:
    """An agent and its hooks, in order: what `--agent module:name` may name."""

    agent: Any
    pre: tuple[Hook, ...] = ()
    post: tuple[Hook, ...] = ()
    run_hooks_in_background: bool = False


def hooked(
    agent: Any,
    *,
    pre: Sequence[HookFunction] = (),
    post: Sequence[HookFunction] = (),
    run_hooks_in_background: bool = False,
) -> Hooked:
    """That agent with hooks. In line, they run in order and the answer waits for them; in the background, they run
    after the turn has ended, on any worker that has the agent, at least once, also when the process that ran the turn
    is killed. Guardrails are always in line."""
    return Hooked(
        agent=agent,
        pre=tuple(_as_hook(one) for one in pre),
        post=tuple(_as_hook(one) for one in post),
        run_hooks_in_background=run_hooks_in_background,
    )


def _as_hook(function: HookFunction) -> Hook:
    if isinstance(function, Hook):
        return function
    return Hook(function=function, name=getattr(function, "__name__", type(function).__name__))


@overload
def hook(function: HookFunction) -> Hook: ...
@overload
def hook(
    *, name: str | None = None, background: bool | None = None, after: Sequence[End] | None = None
) -> Callable[[HookFunction], Hook]: ...
def hook(
    function: HookFunction | None = None,
    *,
    name: str | None = None,
    background: bool | None = None,
    after: Sequence[End] | None = None,
) -> Hook | Callable[[HookFunction], Hook]:
    """Options of one hook: `@hook(background=True, after=["completed", "failed"])`. Without `after`, a post-hook in the
    background follows turns that complete, a pre-hook every end."""

    def made(given: HookFunction) -> Hook:
        return Hook(function=given, name=name or _as_hook(given).name, background=background, after=after)

    return made if function is None else made(function)


def guardrail(function: HookFunction) -> Hook:
    """A hook that may refuse: `raise Refused("why")`. Always in line, whatever the agent says of its hooks."""
    return Hook(function=function, name=_as_hook(function).name, background=False, guardrail=True)


@overload
def evaluation(function: HookFunction) -> Hook: ...
@overload
def evaluation(*, name: str | None = None, background: bool | None = None) -> Callable[[HookFunction], Hook]: ...
def evaluation(
    function: HookFunction | None = None, *, name: str | None = None, background: bool | None = None
) -> Hook | Callable[[HookFunction], Hook]:
    """A post-hook whose result is stored and listed as an evaluation of the turn: a judge, a score, a label."""

    def made(given: HookFunction) -> Hook:
        return Hook(function=given, name=name or _as_hook(given).name, background=background, evaluation=True)

    return made if function is None else made(function)
