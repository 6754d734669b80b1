"""How a run ended: the fields of its last events, which its object has, too."""

from typing import Any

from services.gateway.dialects.agentos.run import Run

_ERRORS = {
    "model_error": ("model_provider_error", None),
    "input_refused": ("input_check_error", "input_not_allowed"),
}
"""Code of a failed turn -> error_type, error_id."""


def metrics_of(run: Run) -> dict[str, Any]:
    """The runtime's own account of the run, else the sum of what its model requests used."""
    if run.component.kind == "workflow":
        return _workflow_metrics(run)
    if run.metrics is not None:
        return run.metrics
    model = run.component.model
    models, total = [], {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}
    for name, used in run.usage.items():
        counted = {**used, "total_tokens": used["input_tokens"] + used["output_tokens"]}
        models.append({"id": name, "provider": model.get("provider", ""), **counted})
        total = {key: total[key] + counted[key] for key in total}
    shown: dict[str, Any] = dict(total) if models else {}
    if run.started_at is not None and run.ended_at is not None:
        shown["duration"] = (run.ended_at - run.started_at) / 1e6
    if models:
        shown["details"] = {"model": models}
    return shown


def _workflow_metrics(run: Run) -> dict[str, Any]:
    """By step, as its runtime told of each."""
    if run.metrics is not None and "steps" in run.metrics:
        return run.metrics
    steps = {}
    for step in run.steps:
        name = str(step.get("step_name", ""))
        steps[name] = {
            "step_name": name,
            "executor_type": step.get("executor_type", "function"),
            "executor_name": step.get("executor_name", name),
            "metrics": step.get("metrics"),
        }
    shown: dict[str, Any] = {"steps": steps}
    if run.started_at is not None and run.ended_at is not None:
        shown["duration"] = (run.ended_at - run.started_at) / 1e6
    return shown


def error_fields(run: Run) -> dict[str, Any]:
    """Of the event that says so."""
    code, message = ("agent_error", "") if run.error is None else (run.error.code, run.error.message)
    type_, id_ = _ERRORS.get(code, (code, None))
    shown: dict[str, Any] = {"error" if run.component.kind == "workflow" else "content": message, "error_type": type_}
    if id_ is not None:
        shown["error_id"] = id_
    return shown


def completed_fields(run: Run) -> dict[str, Any]:
    """Of the last event of a completed run, and of a cancelled one: with all that there is."""
    kind = run.component.kind
    shown: dict[str, Any] = {"content": run.content() or "", "content_type": "str"}
    if kind == "workflow":
        shown |= {"step_results": list(run.steps), "step_executor_runs": member_runs(run), "metadata": metadata_of(run)}
    if kind == "agent" or (kind == "team" and (run.requirements or run.status != "completed")):
        shown["session_state"] = run.session_state or {}
    if kind == "team" and run.members:
        shown["member_responses"] = member_runs(run)
    if kind != "workflow" and run.extra.get("metadata") is not None:
        shown["metadata"] = run.extra["metadata"]
    metrics = metrics_of(run)
    if metrics:
        shown["metrics"] = metrics
    return shown


def metadata_of(run: Run) -> dict[str, Any]:
    metadata = run.extra.get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def member_runs(run: Run) -> list[dict[str, Any]]:
    """Runs inside the run that its runtime told of, as light objects."""
    shown = []
    for member in run.members.values():
        parent = member.scope.parent_run_id
        light: dict[str, Any] = {
            "run_id": member.scope.run_id,
            f"{member.scope.component}_id": member.scope.id,
            **{name: value for name, value in member.base.items() if name.endswith("_name") and name != "step_name"},
            "session_id": run.session_id,
            "parent_run_id": run.run_id if parent in (None, run.turn_id) else parent,
            "content": member.output.get("content"),
            "content_type": member.output.get("content_type", "str"),
            "created_at": member.started_at // 1_000_000,
            "status": member.status,
            "metrics": member.output.get("metrics"),
        }
        shown.append({name: value for name, value in light.items() if value is not None})
    return shown
