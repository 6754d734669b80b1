"""Agno's pre- and post-hooks as hooks of ours.

Those in the background are jobs that the log decides on, members' included; evaluations have results that the log
keeps; and those in line that may rewrite the input are run by the executor, which records what they changed.
Guardrails behind which nothing rewrites, pre-hooks that are not given the input, and post-hooks in line stay with
Agno: it runs them inside the run. As with Agno, a hook that fails in line costs nothing but itself."""

import asyncio
import inspect
from collections.abc import Callable
from typing import Any, Literal, cast

import structlog
from agno.eval.base import BaseEval
from agno.exceptions import InputCheckError, OutputCheckError
from agno.guardrails.base import BaseGuardrail
from agno.run.agent import RunInput
from agno.run.base import RunContext, RunStatus
from agno.run.team import TeamRunInput
from agno.utils.hooks import (
    filter_hook_args,
    get_hook_name,
    normalize_post_hooks,
    normalize_pre_hooks,
    should_run_hook_in_background,
)

from domain.parts import FilePart, Part, TextPart
from services.worker.hooks.declared import HookRun, Refused
from services.worker.hooks.hook import ENDS, Hook, Hooks
from services.worker.runtimes.agno.copies import kind_of, name_of, parts
from services.worker.runtimes.agno.evaluations import judged
from services.worker.runtimes.agno.files import loaded, part_of
from services.worker.runtimes.agno.store import Kind, new_run, new_session

log = structlog.get_logger("turnlog.worker")

Phase = Literal["pre", "post"]

_OF_INPUT = {"audio": "audios"}
"""Fields of Agno's RunInput that are called otherwise than arguments of a run."""


class AgnoHooks:
    """The hooks of a component and its members. `declared` are ours to run; `told` are the names of those that run in
    line before the run."""

    def __init__(self, component: Any, kind: Kind, *, in_background: bool) -> None:
        """`in_background`: all but guardrails, as AgentOS' `run_hooks_in_background` says."""
        self._in_background = in_background
        self._names: set[str] = set()
        self._left: dict[int, tuple[list[int], list[int]]] = {}
        """Places of the pre- and post-hooks that Agno runs, by the component that has them."""
        pre, post = self._taken(component, kind, None)
        for member in parts(component)[1:]:
            of_member = kind_of(member)
            if of_member in ("agent", "team"):
                more_pre, more_post = self._taken(member, of_member, name_of(member))
                pre, post = pre + more_pre, post + more_post
        self.declared = Hooks(pre=tuple(pre), post=tuple(post))
        self.told = [hook.name for hook in self.declared.in_line("pre")]

    def strip(self, component: Any, made: Any) -> None:
        """Leave a copy of the component the hooks that Agno runs."""
        if id(component) in self._left:
            pre, post = self._left[id(component)]
            made.pre_hooks = [component.pre_hooks[place] for place in pre] or None
            made.post_hooks = [component.post_hooks[place] for place in post] or None

    def _taken(self, component: Any, kind: Kind, member: str | None) -> tuple[list[Hook], list[Hook]]:
        """The component's hooks that are ours to run: of a member those in the background."""
        if kind == "workflow" or id(component) in self._left:
            return [], []
        all_later = self._in_background or getattr(component, "_run_hooks_in_background", None) is True

        def later(hook: Any) -> bool:
            if _guards(hook):
                return False
            marked = should_run_hook_in_background(hook) or bool(getattr(hook, "run_in_background", False))
            return marked or all_later

        pre, post = list(component.pre_hooks or []), list(component.post_hooks or [])
        rewriting = [place for place, hook in enumerate(pre) if _may_rewrite(hook) and not later(hook)]
        last = -1 if member is not None else max(rewriting, default=-1)
        ours = [later(hook) or (place <= last and _takes_input(hook)) for place, hook in enumerate(pre)]
        judges = [later(hook) or (member is None and isinstance(hook, BaseEval)) for hook in post]
        self._left[id(component)] = (
            [place for place, mine in enumerate(ours) if not mine],
            [place for place, mine in enumerate(judges) if not mine],
        )
        run = _Of(component, kind, member)
        return (
            [self._hook(hook, "pre", run, later(hook)) for hook, mine in zip(pre, ours, strict=True) if mine],
            [self._hook(hook, "post", run, later(hook)) for hook, mine in zip(post, judges, strict=True) if mine],
        )

    def _hook(self, hook: Any, phase: Phase, of: "_Of", later: bool) -> Hook:
        judges = isinstance(hook, BaseEval) and phase == "post"
        normal = normalize_pre_hooks if phase == "pre" else normalize_post_hooks
        (function,) = normal([hook], async_mode=True) or [hook]
        own = hook if isinstance(hook, BaseGuardrail | BaseEval) else function
        return Hook(
            name=self._unique(getattr(own, "name", None) or get_hook_name(cast(Any, own))),
            call=of.judging(hook, later) if judges else of.calling(function, phase, later),
            phase=phase,
            background=later,
            guardrail=_guards(hook),
            kind="evaluation" if judges else "hook",
            on=ENDS if phase == "pre" else frozenset({"completed"}),
            member=of.member,
        )

    def _unique(self, name: str) -> str:
        made, number = name, 2
        while made in self._names:
            made, number = f"{name}_{number}", number + 1
        self._names.add(made)
        return made


class _Of:
    """The component whose hooks these are; `member`: not the turn's own."""

    def __init__(self, component: Any, kind: Kind, member: str | None) -> None:
        self._component = component
        self._kind: Kind = kind
        self.member = member

    def calling(self, function: Callable[..., Any], phase: Phase, later: bool) -> Callable[[HookRun], Any]:
        """The function as a hook of ours."""

        async def call(run: HookRun) -> Any:
            if self._did_not_run(run):
                return None
            told = self._input(run) if phase == "pre" else self._output(run)
            known = [part for part in run.parts if isinstance(part, FilePart)]
            if phase == "pre" and known:
                media = await loaded(run.read, known)
                for field, objects in media.items():
                    setattr(told["run_input"], _OF_INPUT.get(field, field), objects)
            try:
                answer = await _called(function, filter_hook_args(function, told))
            except (InputCheckError, OutputCheckError) as error:
                raise Refused(str(error)) from error
            except Exception as error:
                if later:
                    raise  # to be tried again
                log.warning("agno.hook_failed", hook=run.hook, error=type(error).__name__)
                return None
            if phase == "post":
                return answer if isinstance(answer, dict | list | str | int | float) else None
            return None if later else await _rewritten(run, told["run_input"], known)

        return call

    def judging(self, evaluation: BaseEval, later: bool) -> Callable[[HookRun], Any]:
        """The evaluation as one of ours."""

        async def call(run: HookRun) -> Any:
            if self._did_not_run(run):
                return None
            try:
                return await judged(evaluation, self._output(run)["run_output"])
            except (InputCheckError, OutputCheckError) as error:
                raise Refused(str(error)) from error
            except Exception as error:
                if later:
                    raise
                log.warning("agno.hook_failed", hook=run.hook, error=type(error).__name__)
                return {"error": type(error).__name__}

        return call

    def _did_not_run(self, run: HookRun) -> bool:
        """A member that nobody called, or that has said nothing."""
        return self.member is not None and run.output is None

    def _input(self, run: HookRun) -> dict[str, Any]:
        make = TeamRunInput if self._kind == "team" else RunInput
        return self._common(run) | {"run_input": make(input_content=run.input)}

    def _output(self, run: HookRun) -> dict[str, Any]:
        output = new_run(self._kind, self._component, run.session_id, run.turn_id, run.input)
        output.content = run.output
        output.status = RunStatus.completed if run.status in ("running", "completed") else RunStatus.error
        return self._common(run) | {"run_output": output}

    def _common(self, run: HookRun) -> dict[str, Any]:
        context = RunContext(run_id=run.turn_id, session_id=run.session_id, session_state={})
        return {
            "agent": self._component,
            "team": self._component,
            "session": new_session(self._kind, self._component, run.session_id),
            "run_context": context,
            "session_state": context.session_state,
            "dependencies": None,
            "user_id": None,
            "debug_mode": False,
            "metadata": None,
        }


async def _called(function: Callable[..., Any], given: dict[str, Any]) -> Any:
    """A plain function runs in a thread: it may block, and the loop has other turns' heartbeats to keep."""
    if inspect.iscoroutinefunction(inspect.unwrap(function)):
        return await function(**given)
    answer = await asyncio.to_thread(function, **given)
    return await answer if inspect.isawaitable(answer) else answer


async def _rewritten(run: HookRun, after: Any, known: list[FilePart]) -> list[Part] | None:
    """The input as the hook left it; None where it is as it was."""
    text = after.input_content if isinstance(after.input_content, str) else run.input
    files: list[FilePart] = []
    for field in ("images", "audios", "videos", "files"):
        for media in getattr(after, field, None) or []:
            part = part_of(media, known)
            if part is None:
                content = media.get_content_bytes()
                if content is None:
                    continue
                part = await run.keep(content, name=getattr(media, "filename", None), media_type=media.mime_type)
            files.append(part)
    if text == run.input and sorted(part.blob for part in files) == sorted(part.blob for part in known):
        return None
    return [TextPart(text), *files]


def _guards(hook: Any) -> bool:
    return isinstance(hook, BaseGuardrail)


def _may_rewrite(hook: Any) -> bool:
    return not _guards(hook) and _takes_input(hook)


def _takes_input(hook: Any) -> bool:
    """It is given the input. What is not needs the run itself, whose session and state Agno knows."""
    if isinstance(hook, BaseGuardrail | BaseEval):
        return True
    try:
        parameters = inspect.signature(hook).parameters
    except (TypeError, ValueError):
        return True
    return "run_input" in parameters or any(one.kind is one.VAR_KEYWORD for one in parameters.values())
