"""Pause and continue: deferred tools as requirements, people's answers as deferred results."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic_ai import DeferredToolRequests, DeferredToolResults, ToolApproved, ToolDenied, ToolFailed
from pydantic_ai.messages import ToolCallPart

from domain.parts import Answer, Requirement
from domain.runtime import PastPause
from services.worker.executor.values import plain
from services.worker.runtimes.pydantic_ai.messages import arguments_of

Kind = Literal["approval", "input", "external"]

_KINDS: dict[str, Kind] = {"approval": "approval", "question": "input", "external": "external"}


def requirements(requests: DeferredToolRequests, items: Mapping[str, str]) -> list[Requirement]:
    """What people are asked."""
    return [
        Requirement(
            tool_call_id=call.tool_call_id,
            kind=_KINDS[requests.kind(call.tool_call_id)],
            tool_name=call.tool_name,
            arguments=plain(arguments_of(call), f"the arguments of {call.tool_name}"),
            item_id=items.get(call.tool_call_id),
        )
        for call in [*requests.approvals, *requests.calls]
    ]


def results(open_calls: Sequence[ToolCallPart], pauses: Sequence[PastPause]) -> DeferredToolResults | None:
    """What people answered in the last pause, for those open calls that wait for it; None where none does."""
    if not pauses:
        return None
    kinds = {requirement.tool_call_id: requirement.kind for requirement in pauses[-1].requirements}
    given = DeferredToolResults()
    for call in open_calls:
        answer = pauses[-1].answers.get(call.tool_call_id)
        kind = kinds.get(call.tool_call_id)
        if answer is None or kind is None:
            continue
        if kind == "approval":
            given.approvals[call.tool_call_id] = _approval(answer)
        else:
            given.calls[call.tool_call_id] = _value(answer)
    return given if given.approvals or given.calls else None


def of_batch(pauses: Sequence[PastPause], items: Mapping[str, str]) -> list[PastPause]:
    """The last pause, if it asked about the calls of this very batch: a later batch may repeat the ids of its calls."""
    if not pauses:
        return []
    asked = pauses[-1]
    mine = [r for r in asked.requirements if r.item_id is None or r.item_id == items.get(r.tool_call_id)]
    return [PastPause(requirements=mine, answers=asked.answers)]


def _approval(answer: Answer) -> bool | ToolApproved | ToolDenied:
    if not answer.approved:
        return ToolDenied(answer.note) if answer.note else ToolDenied()
    return True if answer.arguments is None else ToolApproved(override_args=answer.arguments)


def _value(answer: Answer) -> Any:
    if answer.approved is False:
        return ToolFailed(answer.note or "The user refused.")
    return answer.result if answer.result is not None else answer.arguments
