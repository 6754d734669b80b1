"""Lesson 4: go on from an earlier place of a run. That is a new run; the first one stays as it is."""

from talk import get, post

RUNS, SESSION = "/agents/checkpoint-agent/runs", "checkpoint-demo-session"


def main() -> None:
    question = "Call get_city_fact for Paris and Kyoto, then compare them."
    first = post(RUNS, message=question, session_id=SESSION, stream="false")
    assert first["status"] == "COMPLETED", first
    path = f"{RUNS}/{first['run_id']}"

    places = get(f"{path}/checkpoints", session_id=SESSION)["checkpoints"]
    for place in places:
        print(f"{place['message_index']} messages, {place['reason']}: {place['message_preview']}")
    behind_the_tools = next(place for place in places if not place["is_latest"])

    again = post(
        f"{path}/continue",
        continue_from=str(behind_the_tools["message_index"]),
        input="Only Kyoto, please. Do not call a tool.",
        session_id=SESSION,
        stream="false",
    )
    assert again["status"] == "COMPLETED", again
    assert again["run_id"] != first["run_id"]
    assert again["forked_from_run_id"] == first["run_id"]
    assert get(path, session_id=SESSION)["content"] == first["content"]
    print("another end:", again["content"])


if __name__ == "__main__":
    main()
