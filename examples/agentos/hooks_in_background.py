"""Lesson 5: hooks that the answer does not wait for: all of an agent's, or those that say so. They are durable: a job
that a killed worker had is done by another."""

from typing import Any

from talk import GATEWAY, get, http, post, until


def jobs(session_id: str) -> Any:
    """The background hooks of a session, by name: Turnlog's own route, AgentOS has none."""
    answer = http.get(f"{GATEWAY}/v1/sessions/{session_id}/hooks")
    assert answer.is_success, answer.text
    return answer.json()["items"]


def done(session_id: str, run_id: str, *names: str) -> None:
    """Wait for the run's background hooks, and say what they found."""

    def of_run() -> Any:
        return {job["hook"]: job for job in jobs(session_id) if job["turn_id"] == run_id}

    found = until(
        of_run, lambda seen: {"completed"} == {job["status"] for job in seen.values()} and {*names} <= {*seen}
    )
    for name in names:
        print(f"{name}: {found[name].get('result')}")


def main() -> None:
    for agent, background in (
        ("global-hooks-agent", ("note_request", "measure_answer")),
        ("mixed-hooks-agent", ("notify", "second judge")),
    ):
        session = f"{agent}-session"
        message = "Explain hooks in one sentence."
        run = post(f"/agents/{agent}/runs", message=message, session_id=session, stream="false")
        assert run["status"] == "COMPLETED", run
        print(f"{agent} has answered:", run["content"])
        done(session, run["run_id"], *background)

    # What both judges found is kept: the one that the answer waited for, and the one in the background.
    def verdicts() -> Any:
        rows = get("/eval-runs", agent_id="mixed-hooks-agent")["data"]
        return {row["name"]: row["eval_data"] for row in rows if row["eval_input"]["run_id"] == run["run_id"]}

    for judge, found in until(verdicts, lambda seen: {"first judge", "second judge"} == {*seen}).items():
        assert found["status"] == "completed", found
        print(f"{judge}: {found['results'][0]['reason']}")


if __name__ == "__main__":
    main()
