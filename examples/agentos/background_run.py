"""Lesson 1: hand a run in, go away, come back for its result."""

from talk import ended, http

AGENT, SESSION = "background-run-agent", "background-run-session"


def main() -> None:
    form = {"message": "What is durable?", "session_id": SESSION, "background": "true", "stream": "false"}
    answer = http.post(f"/agents/{AGENT}/runs", data=form)
    assert answer.status_code == 202, answer.text
    accepted = answer.json()
    assert accepted["status"] == "PENDING"
    print("accepted:", accepted["run_id"])

    # The run goes on whatever becomes of this process, the gateway or the worker.
    run = ended(AGENT, accepted["run_id"], SESSION)
    assert run["status"] == "COMPLETED", run
    print("completed:", run["content"])


if __name__ == "__main__":
    main()
