"""What AgentOS's clients send back, as answers; and forms as its server reads them."""

from typing import Any

import pytest

from domain.ids import Micros
from domain.parts import Answer, Requirement
from services.gateway.dialects.agentos.answers import Refused
from services.gateway.dialects.agentos.branching import branch_of
from services.gateway.dialects.agentos.calls import requirement_object, step_requirement, tool_object
from services.gateway.dialects.agentos.decisions import answers_of, check_shape, open_names
from services.gateway.dialects.agentos.forms import Form

APPROVAL = Requirement(tool_call_id="c1", kind="approval", tool_name="act", arguments={"what": "a"})
INPUT = Requirement(
    tool_call_id="c2",
    kind="input",
    tool_name="go",
    arguments={"how": "train"},
    fields=[{"name": "place", "field_type": "str", "description": None, "value": None}],
)
EXTERNAL = Requirement(tool_call_id="c3", kind="external", tool_name="outside", arguments={})
STEP = Requirement(
    tool_call_id="s1",
    kind="approval",
    tool_name="two",
    fields=[{"agentos": {"step_requirement": {"step_id": "s1", "step_name": "two", "requires_confirmation": True}}}],
)


def tool(requirement: Requirement, **changed: Any) -> dict[str, Any]:
    shown = tool_object(
        tool_call_id=requirement.tool_call_id,
        name=requirement.tool_name,
        arguments=requirement.arguments,
        created_at=0,  # type: ignore[arg-type]
        requirement=requirement,
    )
    return {**shown, **changed}


def test_tools_decide_what_agents_ask() -> None:
    asked = [APPROVAL, INPUT, EXTERNAL]
    untouched = [tool(one) for one in asked]
    assert answers_of("agent", asked, untouched) == {}, "an echo decides nothing"
    assert open_names(asked, {}) == ["act", "go", "outside"]
    schema = untouched[1]["user_input_schema"]
    assert schema[0]["name"] == "place"
    given = answers_of(
        "agent",
        asked,
        [
            tool(APPROVAL, confirmed=False, confirmation_note="no"),
            tool(INPUT, user_input_schema=[{**schema[0], "value": "Rome"}], answered=True),
            tool(EXTERNAL, result="done"),
        ],
    )
    assert given["c1"] == Answer(approved=False, note="no")
    assert given["c2"].arguments == {"how": "train", "place": "Rome"}
    assert given["c3"].result == "done"
    assert open_names(asked, given) == []


def test_requirements_decide_what_teams_ask() -> None:
    shown = requirement_object("t", APPROVAL, Micros(0), None)
    assert answers_of("team", [APPROVAL], [shown]) == {}
    shown["confirmation"] = True
    assert answers_of("team", [APPROVAL], [shown])["c1"].approved is True
    shown = requirement_object("t", APPROVAL, Micros(0), None)
    shown["tool_execution"]["confirmed"] = False
    assert answers_of("team", [APPROVAL], [shown])["c1"].approved is False


def test_step_requirements_decide_what_workflows_ask_and_echoes_of_resolved_ones_are_equal_repeats() -> None:
    shown = step_requirement(STEP)
    assert answers_of("workflow", [STEP], [shown]) == {}
    shown["confirmed"] = True
    given = answers_of("workflow", [STEP], [shown])["s1"]
    assert given.approved is True
    assert given.arguments == {"confirmed": True}
    resolved = Requirement(tool_call_id="s1", kind="approval", tool_name="two", fields=STEP.fields, answer=given)
    assert answers_of("workflow", [resolved], [step_requirement(resolved)])["s1"].same_decision(given)


def test_entries_that_name_nothing_are_refused() -> None:
    for kind, entry in (("agent", {"x": 1}), ("team", {"tool_execution": {}}), ("workflow", {"confirmed": True})):
        with pytest.raises(Refused) as refused:
            check_shape(kind, [entry])  # type: ignore[arg-type]
        assert refused.value.status == 400


def form(**fields: str) -> Form:
    return Form(fields)


@pytest.mark.parametrize(
    ("fields", "detail"),
    [
        ({"continue_from": "zz"}, "Invalid continue_from. Use 'end', 'last_user', or a numeric message index."),
        ({"replace_original": "true"}, "`replace_original` only makes sense with `regenerate=True`."),
        (
            {"regenerate": "true", "continue_from": "2"},
            "`regenerate=True` derives the continuation boundary automatically.",
        ),
        (
            {"input": "a", "additional_instructions": "b"},
            "Provide either `additional_instructions` or `input`, not both.",
        ),
    ],
)
def test_what_does_not_go_together_is_refused_in_agentos_words(fields: dict[str, str], detail: str) -> None:
    with pytest.raises(Refused) as refused:
        branch_of(form(**fields))
    assert (refused.value.status, refused.value.detail) == (400, detail)


def test_forms() -> None:
    said = form(message="", stream="No", background="1", session_state='{"a": 1}', dependencies="{", x="None", y="yes")
    with pytest.raises(Refused) as refused:
        said.needed("message")
    assert refused.value.status == 422
    assert refused.value.detail[0]["loc"] == ["body", "message"]
    assert said.flag("stream", True) is False
    assert said.flag("background", False) is True
    assert said.rest({"message", "stream", "background"}) == {"session_state": {"a": 1}, "x": None, "y": "yes"}
    with pytest.raises(Refused) as refused:
        form(stream="maybe").flag("stream", True)
    assert refused.value.detail[0]["type"] == "bool_parsing"
    with pytest.raises(Refused) as refused:
        form(metadata="[1]").rest(())
    assert (refused.value.status, refused.value.detail) == (400, "Invalid metadata parameter: expected a JSON object")
    with pytest.raises(Refused) as refused:
        form(tools="{").array("tools")
    assert refused.value.detail == "Invalid JSON in tools field"
