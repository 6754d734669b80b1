"""The table of deviations in docs/agentos.md, as rules: a difference that no rule explains is a fault, and so is a row
that explains none."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.acceptance.agentos.caller import META
from tests.acceptance.agentos.contract.seen import Seen

TABLE = Path(__file__).parents[4] / "docs" / "agentos.md"


@dataclass(frozen=True)
class Rule:
    """Paths (`where` is the event's name, or the case's label) that only the original has, or only ours."""

    row: str
    there: str | None = None
    here: str | None = None
    where: str = ""

    def explains(self, where: str, path: str, *, ours: bool) -> bool:
        pattern = self.here if ours else self.there
        return pattern is not None and bool(re.search(self.where, where)) and bool(re.fullmatch(pattern, path))


_PER_RUN = r"(\[\]\.)?(step_executor_runs|member_responses)\[\]\.(\w+:.*|metrics\.\w+:.*)"

_DECIDED = (
    r"(requirements\[\]\.(confirmation|confirmation_note|external_execution_result)|messages\[\]\.tool_call_error"
    r"|(requirements\[\]\.tool_execution|tools\[\]|tool)\.(metrics|result|tool_call_error)):\w+"
)

_STOPPED = "^(WorkflowCompleted|poll a cancelled one, workflows)$"

RULES: tuple[Rule, ...] = (
    Rule("inline-index", here=r"(events\[\]\.)?event_index:number"),
    Rule("provider-data", there=r"(.*\.)?(model_)?provider_data:object|.*(messages|chat_history)\[\]\.metrics:object"),
    Rule("checkpoints-always", here=r"last_checkpoint_at_message_index:number", where="inline"),
    Rule(
        "messages-own",
        there=r"(snapshot\.)?messages\[\]\.(checkpoint_\w+|tool_\w+):.*|last_checkpoint_at_message_index:number"
        r"|tools\[\]:object",
    ),
    Rule("messages-own", there=r"tools:array", where="^team, (fork|regenerate)$"),
    Rule(
        "files",
        there=r"input\.(files|images):array|messages\[\]\.(images:array|files\[\]\.\w+:\w+)",
        here=r"messages\[\]\.(files:array|files\[\]\.\w+:\w+)",
        where="^upload",
    ),
    Rule(
        "decided", there=_DECIDED, here=_DECIDED, where="^(confirmed|refused|external|input|team, decided|.*ToolCall)"
    ),
    Rule("child-run", there=r"tool\.child_run_id:string", here=r"tool\.child_run_id:null", where="^TeamToolCall"),
    Rule("poll-early", here=r"messages:array|session_state:object", where="^poll while it runs$"),
    Rule("poll-events", there=r"\[\]\.events:array", here=r"\[\]\.events:null", where="^list of"),
    Rule("poll-events", here=r"events\[\](\.\w+)?:.*", where="^(?!WorkflowRunOutput)"),
    Rule("workflow-bare", there=r"events:array", where="^WorkflowRunOutput$"),
    Rule("member-light", there=_PER_RUN),
    Rule("member-light", there=r"session_state:object", where="^RunCompleted$"),
    Rule("pause-metrics", there=r"metrics\.duration:(number|null)", here=r"metrics\.steps\.\w+:object"),
    Rule("first-token", there=r"(events\[\]\.)?metrics\.time_to_first_token:number"),
    Rule("workflow-media", there=r"(audio|images|videos|files):array", where="^workflow"),
    Rule("session-nulls", there=r"(metadata|session_summary):null", where="^(rename|change the name)$"),
    Rule("session-metrics", there=r"(data\[\]\.)?metrics\.details:object"),
    Rule("config-parts", there=r"(learning|memory|metrics|traces)\.dbs\[\]:object", where="^/config$"),
    Rule(
        "definition",
        there=r".*tools\[\]\.parameters\.properties\.(member_id|task):object|steps\[\]\.agent:object",
        here=r".*\.additionalProperties:boolean",
        where="^/(agents|teams|workflows)",
    ),
    Rule("cancel-at-once", there=r"metrics\.\w+_tokens:number", here=r"tools:array", where="^cancelled while"),
    Rule("cancel-answer", here=r"(run_id|session_id|status):string", where="^cancel"),
    Rule("metadata-empty", here=r"metadata:object", where="Completed$"),
    Rule("step-failed", there=r"step_results\[\]\.\w+:(null|string)", where="^WorkflowCompleted$"),
    Rule("step-failed", there=r"step_results\[\]:object|metrics\.steps\.one:object", where=_STOPPED),
    Rule("member-light", here=r"step_executor_runs:array", where=_STOPPED),
    Rule("member-light", here=r"member_responses:array", where="^TeamRunCompleted$"),
    Rule("member-light", there=r"metrics:object", where="^RunCompleted$"),
    Rule("metadata-empty", here=r"metadata:object", where=_STOPPED),
    Rule("poll-events", there=r"events\[\]\.\w+:.*", here=r"events\[\]\.metrics\.steps:object", where=_STOPPED),
)

EVENTS: dict[str, str] = {
    r"\(empty\) (Team)?RunContent": "content-empty",
    r"(Team)?(Pre|Post)Hook(Started|Completed)": "hook-events",
    r"(\(empty\) )?WorkflowRunContent": "workflow-text",
}
"""Events that may be on one side only -> row."""


def rows() -> set[str]:
    """The names in the first column."""
    text = TABLE.read_text().partition("## Where it differs")[2]
    return set(re.findall(r"^\| `([a-z-]+)` \|", text, re.MULTILINE))


def _outermost(original: frozenset[str], ours: frozenset[str]) -> Iterator[tuple[str, bool]]:
    """Paths that one side has, and whether it is ours; not what lies inside of them."""
    for path in sorted(original ^ ours):
        own, other = (ours, original) if path in ours else (original, ours)
        place = path.rpartition(":")[0]
        around = place.removesuffix("[]") if place.endswith("[]") else place.rpartition(".")[0]
        kind = "array" if place.endswith("[]") else "object"
        if not around or f"{around}:{kind}" in other or f"{around}:{kind}" not in own:
            yield path, path in ours


class Comparison:
    """Goes through what was seen there and here. `faults`: what nothing explains; `used`: the rows that explained."""

    def __init__(self) -> None:
        self.faults: list[str] = []
        self.used: set[str] = set()

    def compare(self, there: Iterable[Seen], here: Iterable[Seen]) -> None:
        for original, ours in zip(there, here, strict=True):
            assert original.label == ours.label
            if ours.row is None:
                self._alike(original, ours)
            elif original.answer == ours.answer:
                self._fault(ours, f"`{ours.row}` is no deviation any more: both say {ours.answer}")
            elif ours.answer != ours.ours:
                self._fault(ours, f"`{ours.row}` says {ours.ours}, and it was {ours.answer}")
            else:
                self.used.add(ours.row)

    def _alike(self, original: Seen, ours: Seen) -> None:
        for name in ("status", "media", "detail", "fact"):
            one, other = getattr(original, name), getattr(ours, name)
            if one != other:
                self._fault(ours, f"{name}: original {one!r}, ours {other!r}")
        self._forms(ours, ours.label, original.form, ours.form)
        one_by_one = self._events(original), self._events(ours)
        names = [[name for name, _ in events] for events in one_by_one]
        if names[0] != names[1]:
            self._fault(ours, f"events: original {names[0]}, ours {names[1]}")
            return
        for (name, form), (_, other_form) in zip(*one_by_one, strict=True):
            self._forms(ours, name, form, other_form)

    def _events(self, seen: Seen) -> list[tuple[str, frozenset[str]]]:
        """Frames about the stream first: when they come among what is new is chance."""
        kept: list[tuple[str, frozenset[str]]] = []
        for name, form in sorted(seen.events, key=lambda event: event[0] not in META):
            row = next((row for pattern, row in EVENTS.items() if re.fullmatch(pattern, name)), None)
            if row is not None:
                self.used.add(row)
            elif not (kept and kept[-1][0] == name and name.endswith("RunContent")):
                kept.append((name, form))
        return kept

    def _forms(self, case: Seen, where: str, original: frozenset[str], ours: frozenset[str]) -> None:
        for path, is_ours in _outermost(original, ours):
            rule = next((one for one in RULES if one.explains(where, path, ours=is_ours)), None)
            if rule is None:
                self._fault(case, f"{where}: only {'ours has' if is_ours else 'the original has'} {path}")
            else:
                self.used.add(rule.row)

    def _fault(self, case: Seen, what: Any) -> None:
        self.faults.append(f"{case.label}: {what}")
