"""Lesson 2: stop a run. What it has said until then stays."""

from itertools import islice

from talk import ended, events, post, said

AGENT, SESSION = "cancellable-agent", "cancel-run-session"


def main() -> None:
    runs = f"/agents/{AGENT}/runs"
    stream = events(runs, message="Write a field guide to birds.", session_id=SESSION, background="true", stream="true")
    seen = list(islice(stream, 6))
    run_id = seen[0]["run_id"]
    print("it says:", said(seen), "…")

    stopped = post(f"{runs}/{run_id}/cancel", session_id=SESSION)
    print("cancelled while:", stopped["status"])

    # The stream ends with a pair: a client must not take the second for a success.
    seen += stream
    assert [event["event"] for event in seen[-2:]] == ["RunCancelled", "RunCompleted"]
    run = ended(AGENT, run_id, SESSION)
    assert run["status"] == "CANCELLED", run
    assert run["content"] == seen[-1]["content"] == said(seen)
    print("kept:", len(run["content"].split()), "words")


if __name__ == "__main__":
    main()
