# ruff: noqa
# mypy: ignore-errors
"""Deterministic stand-in for an OpenAI endpoint (Responses + Chat Completions).

Standard library only.  It exists so that agent frameworks can be driven
without a network or a key:

    python fake_openai.py --port 8099
    OPENAI_API_KEY=x OPENAI_BASE_URL=http://127.0.0.1:8099/v1  <program>

Steering is done from the text of the last user message:

    [say: some words]      answer with exactly these words
    [words=N]              answer with N numbered words
    [delay=S]              seconds before the first byte of the answer
    [gap=S]                seconds between streamed words
    [http=500]             answer with this HTTP status
    [tool: name {json}]    call this tool (may be repeated); after the tool
                           results are in, the model answers in text
    [again: name {json}]   second batch of calls, after the first batch is in

Without a marker a small set of phrases is recognised, so that unchanged
third-party example scripts work: "get_city_fact" for Paris/Kyoto,
"Reserve a demonstration trip to X", and so on.  Requests that ask for a JSON
schema get a minimal instance of the schema.
"""

import argparse
import json
import os
import re
import threading
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

DEFAULT_DELAY = float(os.environ.get("FAKE_DELAY", "0.05"))
DEFAULT_GAP = float(os.environ.get("FAKE_GAP", "0.03"))
LOG = os.environ.get("FAKE_LOG")
_lock = threading.Lock()


def log(entry):
    if LOG:
        with _lock, open(LOG, "a") as fh:
            fh.write(json.dumps(entry) + "\n")


def flatten(content):
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    return " ".join(p.get("text", "") for p in content if isinstance(p, dict))


def read_turns(body):
    """Normalise both dialects into a list of (role, text) with role in
    user / assistant / call / result / system."""
    turns = []
    items = body.get("messages") or body.get("input") or []
    if isinstance(items, str):
        return [("user", items)]
    for it in items:
        kind = it.get("type")
        if kind == "function_call":
            turns.append(("call", it.get("name", "")))
        elif kind == "function_call_output":
            turns.append(("result", str(it.get("output", ""))))
        elif it.get("role") == "tool":
            turns.append(("result", flatten(it.get("content"))))
        elif it.get("role") == "assistant":
            if it.get("tool_calls"):
                for c in it["tool_calls"]:
                    turns.append(("call", c["function"]["name"]))
            else:
                turns.append(("assistant", flatten(it.get("content"))))
        elif it.get("role") in ("system", "developer"):
            turns.append(("system", flatten(it.get("content"))))
        else:
            turns.append(("user", flatten(it.get("content"))))
    return turns


def tool_names(body):
    names = []
    for t in body.get("tools") or []:
        names.append(t.get("name") or (t.get("function") or {}).get("name"))
    return names


def marker(text, name, cast, default):
    m = re.search(r"\[%s=([^\]]+)\]" % name, text)
    return cast(m.group(1)) if m else default


def instance(schema, defs):
    if "$ref" in schema:
        return instance(defs[schema["$ref"].split("/")[-1]], defs)
    if "enum" in schema:
        return schema["enum"][0]
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return instance(schema[key][0], defs)
    t = schema.get("type")
    if t == "object" or "properties" in schema:
        return {k: instance(v, defs) for k, v in (schema.get("properties") or {}).items()}
    if t == "array":
        return []
    if t == "integer":
        return schema.get("maximum", schema.get("minimum", 8))
    if t == "number":
        return schema.get("maximum", schema.get("minimum", 8))
    if t == "boolean":
        return True
    if t == "null":
        return None
    return "ok"


def wanted_schema(body):
    fmt = (body.get("text") or {}).get("format") or {}
    if fmt.get("type") == "json_schema":
        return fmt.get("schema")
    rf = body.get("response_format") or {}
    if rf.get("type") == "json_schema":
        return (rf.get("json_schema") or {}).get("schema")
    return None


def decide(body):
    """Return (text, calls, delay, gap, status)."""
    turns = read_turns(body)
    last_user = max((i for i, t in enumerate(turns) if t[0] == "user"), default=-1)
    text = turns[last_user][1] if last_user >= 0 else ""
    results_after = [t for t in turns[last_user + 1 :] if t[0] == "result"]
    delay = marker(text, "delay", float, DEFAULT_DELAY)
    gap = marker(text, "gap", float, DEFAULT_GAP)
    status = marker(text, "http", int, 200)
    names = tool_names(body)

    schema = wanted_schema(body)
    if schema is not None:
        return json.dumps(instance(schema, schema.get("$defs", {}))), [], delay, 0.0, status

    first = [(n, a.strip() or "{}") for n, a in re.findall(r"\[tool: (\w+)\s*(\{.*?\})?\s*\]", text)]
    second = [(n, a.strip() or "{}") for n, a in re.findall(r"\[again: (\w+)\s*(\{.*?\})?\s*\]", text)]
    calls = []
    if first and not results_after:
        calls = first
    elif second and len(results_after) == len(first):
        calls = second
    elif not first and not results_after:
        if "get_city_fact" in names and "get_city_fact" in text:
            calls = [("get_city_fact", json.dumps({"city": c})) for c in ("Paris", "Kyoto") if c in text]
        elif "reserve_trip" in names and text.startswith("Reserve a demonstration trip to"):
            dest = text.split("trip to", 1)[1].strip(" .")
            calls = [("reserve_trip", json.dumps({"destination": dest}))]
    calls = [c for c in calls if c[0] in names]
    if calls:
        return "", calls, delay, gap, status

    said = re.search(r"\[say: ([^\]]*)\]", text)
    n = marker(text, "words", int, 0)
    if said:
        out = said.group(1)
    elif n:
        out = " ".join("w%d" % i for i in range(n))
    elif results_after:
        out = "Tool results: " + " | ".join(r[1] for r in results_after)
    elif "field guide" in text:
        out = " ".join("w%d" % i for i in range(60))
        delay = max(delay, 3.0)
    else:
        users = sum(1 for t in turns if t[0] == "user")
        out = "Deterministic answer to user message number %d with several words to stream." % users
    return out, [], delay, gap, status


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *a):
        pass

    def send_json(self, obj, status=200):
        raw = json.dumps(obj).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def start_sse(self):
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        self.close_connection = True

    def sse(self, obj, name=None):
        if name:
            self.wfile.write(("event: %s\n" % name).encode())
        self.wfile.write(("data: %s\n\n" % (obj if isinstance(obj, str) else json.dumps(obj))).encode())
        self.wfile.flush()

    def do_GET(self):
        self.send_json({"object": "list", "data": []})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)) or b"{}")
        text, calls, delay, gap, status = decide(body)
        log(
            {
                "path": self.path,
                "turns": read_turns(body),
                "text": text,
                "calls": calls,
                "stream": bool(body.get("stream")),
            }
        )
        try:
            if status != 200:
                return self.send_json(
                    {"error": {"message": "forced failure", "type": "server_error", "code": None}}, status
                )
            stream = bool(body.get("stream"))
            if not stream:
                time.sleep(delay)
            if self.path.endswith("/responses"):
                self.reply_responses(body, text, calls, delay, gap, stream)
            else:
                self.reply_chat(body, text, calls, delay, gap, stream)
        except (BrokenPipeError, ConnectionResetError):
            log({"path": self.path, "client": "gone"})

    # -- Responses dialect -------------------------------------------------
    def reply_responses(self, body, text, calls, delay, gap, stream):
        rid = "resp_" + uuid.uuid4().hex[:12]
        items = []
        for name, args in calls:
            items.append(
                {
                    "type": "function_call",
                    "id": "fc_" + uuid.uuid4().hex[:12],
                    "call_id": "call_" + uuid.uuid4().hex[:12],
                    "name": name,
                    "arguments": args,
                    "status": "completed",
                }
            )
        if not calls:
            items.append(
                {
                    "type": "message",
                    "id": "msg_" + uuid.uuid4().hex[:12],
                    "role": "assistant",
                    "status": "completed",
                    "content": [{"type": "output_text", "text": text, "annotations": []}],
                }
            )
        usage = {
            "input_tokens": 10,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 5,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 15,
        }

        def resp(state, output, use):
            return {
                "id": rid,
                "object": "response",
                "created_at": int(time.time()),
                "status": state,
                "model": body.get("model", "fake"),
                "output": output,
                "usage": use,
                "error": None,
                "incomplete_details": None,
                "instructions": None,
                "metadata": {},
                "parallel_tool_calls": True,
                "temperature": 1.0,
                "tool_choice": "auto",
                "tools": [],
                "top_p": 1.0,
            }

        if not stream:
            return self.send_json(resp("completed", items, usage))
        self.start_sse()
        seq = [0]

        def ev(kind, **kw):
            kw.update(type=kind, sequence_number=seq[0])
            seq[0] += 1
            self.sse(kw, kind)

        ev("response.created", response=resp("in_progress", [], None))
        time.sleep(delay)
        for i, it in enumerate(items):
            if it["type"] == "function_call":
                ev("response.output_item.added", output_index=i, item=dict(it, arguments="", status="in_progress"))
                ev("response.function_call_arguments.delta", output_index=i, item_id=it["id"], delta=it["arguments"])
                ev("response.function_call_arguments.done", output_index=i, item_id=it["id"], arguments=it["arguments"])
                ev("response.output_item.done", output_index=i, item=it)
            else:
                ev("response.output_item.added", output_index=i, item=dict(it, content=[], status="in_progress"))
                ev(
                    "response.content_part.added",
                    output_index=i,
                    content_index=0,
                    item_id=it["id"],
                    part={"type": "output_text", "text": "", "annotations": []},
                )
                for w in re.findall(r"\S+\s*", text):
                    ev(
                        "response.output_text.delta",
                        output_index=i,
                        content_index=0,
                        item_id=it["id"],
                        delta=w,
                        logprobs=[],
                    )
                    time.sleep(gap)
                ev(
                    "response.output_text.done",
                    output_index=i,
                    content_index=0,
                    item_id=it["id"],
                    text=text,
                    logprobs=[],
                )
                ev(
                    "response.content_part.done",
                    output_index=i,
                    content_index=0,
                    item_id=it["id"],
                    part=it["content"][0],
                )
                ev("response.output_item.done", output_index=i, item=it)
        ev("response.completed", response=resp("completed", items, usage))

    # -- Chat Completions dialect -------------------------------------------
    def reply_chat(self, body, text, calls, delay, gap, stream):
        cid = "chatcmpl-" + uuid.uuid4().hex[:12]
        tcs = [
            {"id": "call_" + uuid.uuid4().hex[:12], "type": "function", "function": {"name": n, "arguments": a}}
            for n, a in calls
        ]
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        base = {"id": cid, "created": int(time.time()), "model": body.get("model", "fake")}
        if not stream:
            msg = {"role": "assistant", "content": None if tcs else text}
            if tcs:
                msg["tool_calls"] = tcs
            return self.send_json(
                dict(
                    base,
                    object="chat.completion",
                    usage=usage,
                    choices=[
                        {"index": 0, "message": msg, "finish_reason": "tool_calls" if tcs else "stop", "logprobs": None}
                    ],
                )
            )
        self.start_sse()

        def chunk(delta, fin=None):
            self.sse(
                dict(
                    base,
                    object="chat.completion.chunk",
                    choices=[{"index": 0, "delta": delta, "finish_reason": fin, "logprobs": None}],
                )
            )

        chunk({"role": "assistant", "content": ""})
        time.sleep(delay)
        if tcs:
            for i, t in enumerate(tcs):
                chunk({"tool_calls": [dict(t, index=i)]})
            chunk({}, "tool_calls")
        else:
            for w in re.findall(r"\S+\s*", text):
                chunk({"content": w})
                time.sleep(gap)
            chunk({}, "stop")
        self.sse(dict(base, object="chat.completion.chunk", choices=[], usage=usage))
        self.sse("[DONE]")


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--port", type=int, default=8099)
    a = ap.parse_args()
    ThreadingHTTPServer.daemon_threads = True
    ThreadingHTTPServer(("127.0.0.1", a.port), Handler).serve_forever()
