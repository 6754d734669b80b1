"""Pauses: what Agno waits for as requirements, people's answers as what Agno reads."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from agno.models.response import ToolExecution
from agno.run.requirement import RunRequirement
from agno.workflow.types import ErrorRequirement, StepRequirement, UserInputField

from domain.parts import Answer, Requirement
from services.worker.executor.values import plain
from services.worker.runtimes.agno.events import fitting

Items = Mapping[str, Mapping[str, str]]

_CHANGED = (
    "confirmed",
    "user_input",
    "selected_choices",
    "rejection_feedback",
    "edited_output",
    "on_reject",
)


def of_run(output: Any, items: Items) -> list[Requirement]:
    """What a paused agent or team asks."""
    requirements = output.requirements or []
    names = _names(requirements, items, output.run_id)
    asked = zip(requirements, names, strict=True)
    return [_of_tool(one, name, items, output.run_id) for one, name in asked if not one.is_resolved()]


def of_workflow(output: Any, items: Items) -> list[Requirement]:
    """What a paused workflow asks: of a step, or of the agent or team in it."""
    asked = [_of_error(error) for error in output.active_error_requirements or []]
    for step in (output.step_requirements or [])[-1:]:
        if step.requires_executor_input:
            tools = [_as_requirement(one) for one in step.executor_requirements or []]
            for tool, name in zip(tools, _names(tools, items, step.executor_run_id), strict=True):
                if not tool.is_resolved():
                    asked.append(_of_tool(tool, name, items, step.executor_run_id, step))
        elif not step.is_resolved:
            asked.append(_of_step(step))
    return asked


def _names(requirements: Sequence[RunRequirement], items: Items, run_id: str | None) -> list[str]:
    """What each is asked by: the id of its call. Members' providers may give several calls one id: then that of its
    item."""
    ids = [(one.tool_execution and one.tool_execution.tool_call_id) or one.id for one in requirements]
    calls = [items.get(one.member_run_id or run_id or "", {}) for one in requirements]
    return [
        name if ids.count(name) == 1 else known.get(name) or one.id
        for one, name, known in zip(requirements, ids, calls, strict=True)
    ]


def _of_tool(
    one: RunRequirement, name: str, items: Items, run_id: str | None, step: StepRequirement | None = None
) -> Requirement:
    tool = one.tool_execution or ToolExecution()
    kind = kind_of(tool)
    told: dict[str, Any] = {
        "member_agent_id": one.member_agent_id,
        "member_agent_name": one.member_agent_name,
        "member_run_id": one.member_run_id,
        "approval_type": tool.approval_type,
        "external_execution_silent": tool.external_execution_silent,
        "user_feedback_schema": None
        if tool.user_feedback_schema is None
        else [question.to_dict() for question in tool.user_feedback_schema],
        "requirement_id": one.id,
        "step_requirement": None if step is None else step.to_dict(),
    }
    fields: list[Any] = []
    if kind == "input":
        fields = [field.to_dict() for field in tool.user_input_schema or []]
    told = {key: value for key, value in told.items() if value is not None}
    calls = items.get(one.member_run_id or run_id or "", {})
    return Requirement(
        tool_call_id=name,
        kind=kind,
        tool_name=tool.tool_name or "",
        arguments=plain(tool.tool_args or {}, f"the arguments of {tool.tool_name}"),
        fields=[*fitting(fields), {"agentos": fitting(told)}],
        item_id=calls.get(tool.tool_call_id or ""),
    )


def _of_step(step: StepRequirement) -> Requirement:
    asks = step.requires_user_input or step.requires_route_selection
    schema = [field.to_dict() for field in step.user_input_schema or []]
    return Requirement(
        tool_call_id=step.step_id,
        kind="input" if asks else "approval",
        tool_name=step.step_name or "",
        fields=[*(fitting(schema) if asks else []), {"agentos": {"step_requirement": fitting(step.to_dict())}}],
    )


def _of_error(error: ErrorRequirement) -> Requirement:
    return Requirement(
        tool_call_id=error.step_id,
        kind="approval",
        tool_name=error.step_name or "",
        fields=[{"agentos": {"error_requirement": fitting(error.to_dict())}}],
    )


def kind_of(tool: ToolExecution) -> Literal["approval", "input", "external"]:
    """Feedback and input first: such a tool may need a confirmation too, which the input then is."""
    if tool.user_feedback_schema or tool.requires_user_input:
        return "input"
    return "external" if tool.external_execution_required else "approval"


def answer_run(run: Any, answers: Mapping[str, Answer], items: Items) -> list[RunRequirement]:
    """Put people's answers into a paused run's requirements and tools, which are copies of each other there."""
    requirements = [_as_requirement(one) for one in run.requirements or []]
    answered: dict[tuple[str | None, str | None], ToolExecution] = {}
    for one, name in zip(requirements, _names(requirements, items, run.run_id), strict=True):
        if one.tool_execution is None or name not in answers:
            continue
        _answer_tool(one, answers[name])
        if one.member_run_id in (None, run.run_id):
            answered[one.tool_execution.tool_call_id, one.tool_execution.tool_name] = one.tool_execution
    run.requirements = requirements
    if run.tools:
        run.tools = [answered.get((tool.tool_call_id, tool.tool_name), tool) for tool in run.tools]
    return requirements


def answer_workflow(run: Any, answers: Mapping[str, Answer], items: Items) -> None:
    """The same for a workflow."""
    for step in (run.step_requirements or [])[-1:]:
        if step.requires_executor_input:
            tools = [_as_requirement(one) for one in step.executor_requirements or []]
            for one, name in zip(tools, _names(tools, items, step.executor_run_id), strict=True):
                if name in answers:
                    _answer_tool(one, answers[name])
            step.executor_requirements = [one.to_dict() for one in tools]
        elif step.step_id in answers:
            _answer_step(step, answers[step.step_id])
    for error in run.error_requirements or []:
        answer = answers.get(error.step_id)
        if answer is not None:
            error.retry() if answer.approved is not False else error.skip()


def _answer_tool(one: RunRequirement, answer: Answer) -> None:
    tool = one.tool_execution
    assert tool is not None
    refused = answer.approved is False
    match kind_of(tool):
        case "approval":
            tool.confirmed = one.confirmation = not refused
            tool.confirmation_note = one.confirmation_note = answer.note
            if answer.arguments is not None and not refused:
                tool.tool_args = dict(answer.arguments)
        case "external":
            given = answer.result if answer.result is not None else answer.arguments
            text = given if isinstance(given, str) else str(plain(given, "an answer")) if given is not None else ""
            tool.result = one.external_execution_result = (answer.note or "The user refused.") if refused else text
        case "input":
            values = dict(answer.arguments or (answer.result if isinstance(answer.result, dict) else {}))
            for field in [*(tool.user_input_schema or []), *(one.user_input_schema or [])]:
                if field.name in values:
                    field.value = values[field.name]
                elif refused and field.value is None:
                    field.value = answer.note or ""
            for question in [*(tool.user_feedback_schema or []), *(one.user_feedback_schema or [])]:
                chosen = values.get(question.question, [])
                question.selected_options = chosen if isinstance(chosen, list) else [chosen]
            if tool.requires_confirmation:
                tool.confirmed = one.confirmation = not refused
            tool.answered = True


def _answer_step(step: StepRequirement, answer: Answer) -> None:
    values = dict(answer.arguments or {})
    for name in _CHANGED:
        if name in values:
            setattr(step, name, values.pop(name))
    if answer.approved is not None:
        step.confirmed = answer.approved
    if answer.note and not step.rejection_feedback:
        step.rejection_feedback = answer.note
    if step.requires_user_input:
        step.user_input = {**(step.user_input or {}), **values}
        for field in step.user_input_schema or []:
            _fill(field, step.user_input)


def _fill(field: UserInputField, values: Mapping[str, Any]) -> None:
    if field.name in values:
        field.value = values[field.name]


def _as_requirement(one: Any) -> RunRequirement:
    return RunRequirement.from_dict(one) if isinstance(one, dict) else one


def by_call(pauses: Sequence[Any]) -> dict[str, Answer]:
    """The answers of the last pause."""
    return dict(pauses[-1].answers) if pauses else {}
