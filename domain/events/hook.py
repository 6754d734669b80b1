"""Events of durable background hooks; they may follow the terminal event of their turn."""

from typing import Any, ClassVar, Literal

from domain.events.base import Event


class HookScheduled(Event, frozen=True, omit_defaults=True, kw_only=True):
    """The log decides that the job runs; the work queue only delivers it. A hook that ran in line, and whose result is
    kept, is scheduled and completed at once."""

    type: ClassVar[str] = "hook.scheduled"

    hook: str
    job_id: str
    kind: Literal["hook", "evaluation"] = "hook"


class HookCompleted(Event, frozen=True, omit_defaults=True, kw_only=True):
    """End of a job."""

    type: ClassVar[str] = "hook.completed"

    job_id: str
    result: Any = None


class HookFailed(Event, frozen=True, omit_defaults=True, kw_only=True):
    """End of a job that ran out of attempts."""

    type: ClassVar[str] = "hook.failed"

    job_id: str
    error: str
    attempts: int
