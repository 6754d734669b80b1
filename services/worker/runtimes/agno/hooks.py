"""Agno's pre- and post-hooks as hooks of ours.

Those in the background are jobs that the log decides on, and those in line that may rewrite the input are run by the
executor, which records what they changed. Guardrails behind which nothing rewrites, and post-hooks in line, stay with
Agno: it runs them inside the run."""

import inspect
from collections.abc import Callable
from typing import Any, Literal, cast

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
from services.worker.runtimes.agno.files import loaded, part_of
from services.worker.runtimes.agno.store import Kind, new_run, new_session

Phase = Literal["pre", "post"]

_OF_INPUT = {"audio": "audios"}
"""Fields of Agno's RunInput that are called otherwise than arguments of a run."""


class AgnoHooks:
    """The hooks of a component: `declared` are ours to run, `left_pre` and `left_post` are what Agno runs itself."""

    def __init__(self, component: Any, kind: Kind, *, in_background: bool) -> None:
        """`in_background`: all but guardrails, as AgentOS' `run_hooks_in_background` says."""
        self._component = component
        self._kind: Kind = kind
        self._all = in_background or getattr(component, "_run_hooks_in_background", None) is True
        self._names: set[str] = set()
        pre = list(getattr(component, "pre_hooks", None) or [])
        post = list(getattr(component, "post_hooks", None) or [])
        rewriting = [number for number, hook in enumerate(pre) if not self._later(hook) and not _guards(hook)]
        last = max(rewriting, default=-1)
        taken = [hook for number, hook in enumerate(pre) if self._later(hook) or number <= last]
        self.left_pre = [hook for number, hook in enumerate(pre) if not self._later(hook) and number > last]
        self.left_post = [hook for hook in post if not self._later(hook)]
        self.declared = Hooks(
            pre=tuple(self._hook(hook, "pre") for hook in taken),
            post=tuple(self._hook(hook, "post") for hook in post if self._later(hook)),
        )
        self.told = [hook.name for hook in self.declared.in_line("pre")]
        """Names of hooks that ran in line before the run."""

    def strip(self, made: Any) -> None:
        """Leave a copy of the component the hooks that Agno runs."""
        made.pre_hooks = self.left_pre or None
        made.post_hooks = self.left_post or None

    def _later(self, hook: Any) -> bool:
        if _guards(hook):
            return False
        return self._all or should_run_hook_in_background(hook) or bool(getattr(hook, "run_in_background", False))

    def _hook(self, hook: Any, phase: Phase) -> Hook:
        normal = normalize_pre_hooks if phase == "pre" else normalize_post_hooks
        (function,) = normal([hook], async_mode=True) or [hook]
        own = hook if isinstance(hook, BaseGuardrail | BaseEval) else function
        name = self._unique(getattr(own, "name", None) or get_hook_name(cast(Any, own)))
        later = self._later(hook)
        return Hook(
            name=name,
            call=self._call(function, phase),
            phase=phase,
            background=later,
            guardrail=_guards(hook),
            kind="evaluation" if isinstance(hook, BaseEval) and phase == "post" else "hook",
            on=ENDS if phase == "pre" else frozenset({"completed"}),
        )

    def _unique(self, name: str) -> str:
        made, number = name, 2
        while made in self._names:
            made, number = f"{name}_{number}", number + 1
        self._names.add(made)
        return made

    def _call(self, function: Callable[..., Any], phase: Phase) -> Callable[[HookRun], Any]:
        async def call(run: HookRun) -> Any:
            told = self._arguments(run, phase)
            known = [part for part in run.parts if isinstance(part, FilePart)]
            if phase == "pre" and known:
                media = await loaded(run.read, known)
                for field, objects in media.items():
                    setattr(told["run_input"], _OF_INPUT.get(field, field), objects)
            given = filter_hook_args(function, told)
            try:
                answer = function(**given)
                if inspect.isawaitable(answer):
                    answer = await answer
            except (InputCheckError, OutputCheckError) as error:
                raise Refused(str(error)) from error
            if phase == "post":
                return answer if isinstance(answer, dict | list | str | int | float) else None
            return await _rewritten(run, told["run_input"], known)

        return call

    def _arguments(self, run: HookRun, phase: Phase) -> dict[str, Any]:
        component = self._component
        output = new_run(self._kind, component, run.session_id, run.turn_id, run.input)
        context = RunContext(run_id=run.turn_id, session_id=run.session_id, session_state={})
        told: dict[str, Any] = {
            "agent": component,
            "team": component,
            "session": new_session(self._kind, component, run.session_id),
            "run_context": context,
            "session_state": context.session_state,
            "dependencies": None,
            "user_id": None,
            "debug_mode": False,
            "metadata": None,
        }
        if phase == "pre":
            make = TeamRunInput if self._kind == "team" else RunInput
            told["run_input"] = make(input_content=run.input)
            return told
        output.content = run.output
        output.status = RunStatus.completed if run.status in ("running", "completed") else RunStatus.error
        told["run_output"] = output
        return told


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
