"""Hooks that a turn waits for: before the agent gets its input, and between its last word and the turn's end."""

from collections.abc import Callable, Iterable
from typing import Any

import structlog

from domain import commands
from domain.parts import FilePart, Part, TextPart, input_text
from domain.runtime import RuntimeFailed
from domain.texts import made_safe
from services.worker.executor.values import encoded_size, plain
from services.worker.hooks.declared import HookRun, Refused
from services.worker.hooks.hook import Hook, Hooks

log = structlog.get_logger("turnlog.worker")

RESULT_BYTES = 16 * 1024


class InLine:
    """The hooks of one execution of one turn. `jobs` is what the command that ends the turn shall say of hooks."""

    def __init__(self, hooks: Hooks, run: HookRun, new_id: Callable[[], str]) -> None:
        """`run`: what every hook is told, as far as it is the same for all."""
        self._hooks = hooks
        self._run = run
        self._results: list[commands.HookJob] = []
        self._new_id = new_id
        self._jobs: list[commands.HookJob] | None = None

    async def before(
        self, parts: list[Part], rewritten_by: Iterable[str], rewrite: Callable[[str, list[Part]], None]
    ) -> list[Part]:
        """Run the pre-hooks; returns the input that the agent gets. Those up to the last one of which the log says that
        it rewrote are passed over: they have seen this input before. `rewrite` is told of each change. Raises
        RuntimeFailed for a refusal, and whatever a hook raises."""
        hooks = self._hooks.in_line("pre")
        done = set(rewritten_by)
        last = max((number for number, hook in enumerate(hooks, start=1) if hook.name in done), default=0)
        for hook in hooks[last:]:
            answer = await self._call(hook, self._told(hook, parts))
            if answer is None:
                continue
            parts = _parts(hook, answer)
            rewrite(hook.name, parts)
        return parts

    async def after(self, parts: list[Part], output: str | None) -> None:
        """Run the post-hooks on what the agent was given and said. Raises as `before`."""
        self._run = _replace(self._run, parts=parts, input=input_text(parts), output=output)
        for hook in self._hooks.in_line("post"):
            answer = await self._call(hook, _replace(self._run, hook=hook.name))
            if hook.kind == "evaluation":
                self._results.append(
                    commands.HookJob(
                        hook=hook.name,
                        job_id=self._new_id(),
                        after=("completed",),
                        kind="evaluation",
                        done=True,
                        result=stored_result(hook.name, answer),
                    )
                )

    def jobs(self) -> list[commands.HookJob]:
        """The same at each call: a command that is repeated must be the same command."""
        if self._jobs is None:
            self._jobs = self._results + [
                commands.HookJob(hook=hook.name, job_id=self._new_id(), after=tuple(sorted(hook.on)), kind=hook.kind)
                for hook in self._hooks.background()
            ]
        return self._jobs

    def _told(self, hook: Hook, parts: list[Part]) -> HookRun:
        return _replace(self._run, hook=hook.name, parts=parts, input=input_text(parts))

    async def _call(self, hook: Hook, run: HookRun) -> Any:
        try:
            return await hook.call(run)
        except Refused as refused:
            log.info("turn.refused_by_hook", session=run.session_id, turn=run.turn_id, hook=hook.name)
            raise RuntimeFailed("input_refused", made_safe(str(refused))[:2000] or "Refused.") from refused


def stored_result(name: str, answer: object) -> Any:
    """A hook's result as JSON within the bound; a larger one is left out, and says so. Raises RuntimeFailed for what is
    no JSON."""
    result = plain(answer, f"the result of the hook {name}")
    size = encoded_size(result)
    return result if size <= RESULT_BYTES else {"omitted": "too_large", "original_bytes": size}


def _parts(hook: Hook, answer: object) -> list[Part]:
    if isinstance(answer, str):
        answer = [TextPart(answer)]
    if not isinstance(answer, list | tuple) or not all(isinstance(part, TextPart | FilePart) for part in answer):
        raise TypeError(f"the pre-hook {hook.name} returned neither None, text nor parts")
    return [TextPart(made_safe(part.text)) if isinstance(part, TextPart) else part for part in answer]


def _replace(run: HookRun, **changes: Any) -> HookRun:
    return HookRun(**{name: changes.get(name, getattr(run, name)) for name in HookRun.__slots__})
