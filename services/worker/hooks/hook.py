"""Hooks as a worker runs them, whatever declared them."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Literal, cast

import msgspec

from services.worker.hooks.declared import Hook as Declared
from services.worker.hooks.declared import Hooked, HookRun

ENDS: frozenset[str] = frozenset({"completed", "failed", "interrupted"})


class Hook(msgspec.Struct, frozen=True, kw_only=True):
    """One hook of an agent. `name` is unique in its agent and stands in the log. `call` may raise anything; `Refused`
    and what it returns mean what `services.worker.hooks.declared` says. `on`: ends of a turn that a background hook
    follows. `member`: it follows what this member of the agent said, by the id in the scope of its items."""

    name: str
    call: Callable[[HookRun], Awaitable[Any]]
    phase: Literal["pre", "post"]
    background: bool = False
    guardrail: bool = False
    kind: Literal["hook", "evaluation"] = "hook"
    on: frozenset[str] = frozenset({"completed"})
    member: str | None = None


class Hooks(msgspec.Struct, frozen=True, kw_only=True):
    """An agent's hooks in order. A runtime may have some of its own, as an attribute `hooks`."""

    pre: tuple[Hook, ...] = ()
    post: tuple[Hook, ...] = ()

    def in_line(self, phase: Literal["pre", "post"]) -> list[Hook]:
        """Those that the turn waits for."""
        return [hook for hook in (self.pre if phase == "pre" else self.post) if not hook.background]

    def background(self) -> list[Hook]:
        """Those that follow the turn's end."""
        return [hook for hook in (*self.pre, *self.post) if hook.background]

    def named(self, name: str) -> Hook | None:
        """By the name that stands in the log."""
        return next((hook for hook in (*self.pre, *self.post) if hook.name == name), None)


NO_HOOKS = Hooks()


class DoubleHook(ValueError):
    """Two hooks of one agent have one name, by which the log could not tell them apart."""


def resolved(declared: Hooked, own: Hooks = NO_HOOKS) -> Hooks:
    """What the facade's words mean, before and after the runtime's own hooks. Raises DoubleHook."""
    pre = tuple(_resolved(one, "pre", declared.run_hooks_in_background) for one in declared.pre)
    post = tuple(_resolved(one, "post", declared.run_hooks_in_background) for one in declared.post)
    hooks = Hooks(pre=(*pre, *own.pre), post=(*own.post, *post))
    seen: set[str] = set()
    for hook in (*hooks.pre, *hooks.post):
        if hook.name in seen:
            raise DoubleHook(f"two hooks are named `{hook.name}`: give one another, as @hook(name=…)")
        seen.add(hook.name)
    return hooks


def _resolved(declared: Declared, phase: Literal["pre", "post"], background: bool) -> Hook:
    in_background = background if declared.background is None else declared.background
    usual = ENDS if phase == "pre" else frozenset({"completed"})
    return Hook(
        name=declared.name,
        call=_awaitable(declared.function),
        phase=phase,
        background=in_background and not declared.guardrail,
        guardrail=declared.guardrail,
        kind="evaluation" if declared.evaluation else "hook",
        on=usual if declared.after is None else frozenset(declared.after) & ENDS,
    )


def _awaitable(function: Callable[[HookRun], Any]) -> Callable[[HookRun], Awaitable[Any]]:
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None)):  # noqa: B004
        return cast(Callable[[HookRun], Awaitable[Any]], function)

    async def in_thread(run: HookRun) -> Any:
        # A plain function may block: the loop has heartbeats of other turns to keep.
        answer = await asyncio.to_thread(function, run)
        return await answer if inspect.isawaitable(answer) else answer

    return in_thread
