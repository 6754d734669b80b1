"""Agno's evaluations, such as a judge agent, as evaluation hooks: what they find is the result of their hook."""

import copy
from typing import Any

from agno.agent import Agent
from agno.db.in_memory import InMemoryDb
from agno.eval.base import BaseEval

from services.worker.runtimes.agno.events import fitting, is_json

_QUIET: dict[str, Any] = {"telemetry": False, "show_spinner": False, "print_summary": False, "print_results": False}


class EvaluationFailed(Exception):
    """It found nothing: its model did not answer, or not in the shape that was asked of it."""


async def judged(evaluation: BaseEval, output: Any) -> Any:
    """Evaluate a run's output by a copy of the evaluation, which writes into no store. Returns what it would have
    written as `eval_data`, within 16 KiB; of one that writes nothing, what it returns. Raises EvaluationFailed."""
    made = copy.copy(evaluation)
    found = _Found()
    for name, value in {**_QUIET, "db": found}.items():
        if hasattr(made, name):
            setattr(made, name, value)
    judge = getattr(made, "evaluator_agent", None)
    if isinstance(judge, Agent):
        # It is given another output schema, and may have a store of its own.
        own = judge.deep_copy()
        own.db, own.telemetry = None, False
        vars(made)["evaluator_agent"] = own
    # Typed to return nothing; one of a user's own may all the same.
    answer: Any = await made.async_post_check(output)  # type: ignore[func-returns-value]
    if not found.records:
        return answer if answer is not None and is_json(answer) else None
    data = found.records[-1].eval_data
    if isinstance(data, dict) and data.get("results") == []:
        raise EvaluationFailed()
    return fitting(data)


class _Found(InMemoryDb):
    """Takes what is to be written."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.records: list[Any] = []

    def create_eval_run(self, eval_run: Any) -> Any:
        self.records.append(eval_run)
        return eval_run
