"""Pause and continue: deferred tools as requirements, people's answers as deferred results."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic_ai import DeferredToolRequests, DeferredToolResults, ToolApproved, ToolDenied, ToolFailed
from pydantic_ai.messages import ToolCallPart

from domain.parts import Answer, Requirement
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


def results(
    open_calls: Sequence[ToolCallPart], asked: Sequence[Requirement], answers: Mapping[str, Answer]
) -> DeferredToolResults | None:
    """What people answered, for those calls that wait for it; None where none does."""
    kinds = {requirement.tool_call_id: requirement.kind for requirement in asked}
    given = DeferredToolResults()
    for call in open_calls:
        answer = answers.get(call.tool_call_id)
        kind = kinds.get(call.tool_call_id)
        if answer is None or kind is None:
            continue
        if kind == "approval":
            given.approvals[call.tool_call_id] = _approval(answer)
        else:
            given.calls[call.tool_call_id] = _value(answer)
    return given if given.approvals or given.calls else None


def _approval(answer: Answer) -> bool | ToolApproved | ToolDenied:
    if not answer.approved:
        return ToolDenied(answer.note) if answer.note else ToolDenied()
    return True if answer.arguments is None else ToolApproved(override_args=answer.arguments)


def _value(answer: Answer) -> Any:
    if answer.approved is False:
        return ToolFailed(answer.note or "The user refused.")
    return answer.result if answer.result is not None else answer.arguments
