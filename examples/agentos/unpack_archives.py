"""Lesson 6: a zip that is sent along is replaced by the files inside it, before the agent is asked."""

import io
import zipfile

from talk import http

RUNS, SESSION = "/agents/archive-agent/runs", "unpack-archives-session"


def zipped(files: dict[str, bytes]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return made.getvalue()


def send(name: str, content: bytes) -> dict[str, str]:
    """A run with one file; its object."""
    form = {"message": "What is in the files?", "session_id": SESSION, "stream": "false"}
    answer = http.post(RUNS, data=form, files={"files": (name, content, "application/zip")})
    assert answer.status_code == 200, answer.text
    run: dict[str, str] = answer.json()
    return run


def main() -> None:
    files = {"notes.txt": b"Read me.", "data/more.csv": b"a,b\n1,2\n", "__MACOSX/._notes.txt": b"rubbish"}
    run = send("files.zip", zipped(files))
    assert run["status"] == "COMPLETED", run
    assert "2 files" in run["content"], run["content"]
    print("seen:", run["content"])

    # A guardrail: what it refuses, the agent never sees, and nothing of it is kept.
    bomb = send("bomb.zip", zipped({"zeros.txt": b"0" * 20_000_000}))
    assert bomb["status"] == "ERROR", bomb
    print("refused:", bomb["content"])


if __name__ == "__main__":
    main()
