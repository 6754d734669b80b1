"""Logs of all processes: one line an event, JSON for machines or aligned text for people, never anybody's words.

`configure` once a process; then `structlog.get_logger()`. Lines of libraries that use `logging` go the same way.
"""

import logging
import re
import sys
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any, Literal, TextIO

import structlog

REMOVED = "[removed]"

# What a key must not contain anywhere in its name, with the reason beside it.
_SECRET = ("token", "ticket", "secret", "password", "passwd", "authorization", "cookie", "credential", "dsn", "jwt")
# What a key must not be: these hold what people, models and tools wrote.
_CONTENT = frozenset(
    {
        "payload", "private", "input", "output", "text", "delta", "data", "body", "content", "arguments", "answer",
        "answers", "prompt", "message", "messages", "parts", "result", "note", "headers", "query_string", "salt",
    }
)  # fmt: skip
# Libraries log URLs; the browser's ticket stands in one.
_IN_URL = re.compile(r"(?i)\b((?:ticket|token|secret|password)=)[^&\s\"']+")
_NAMES = (("session_id", "session"), ("turn_id", "turn"))
# Keys of structlog's own that are no words of a line.
_MACHINERY = frozenset({"exc_info", "stack_info", "_record", "_from_structlog"})


def configure(
    *,
    level: Literal["debug", "info", "warning", "error"] = "info",
    format: Literal["json", "console"] = "json",
    process: Mapping[str, str] | None = None,
    stream: TextIO | None = None,
) -> None:
    """Set up structlog and logging of this process; `process` (role, id) is added to each line."""
    output = stream or sys.stderr
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        named,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _Labels(dict(process or {})),
    ]
    if format == "json":
        shared += [without_content_of_errors, redact]
        render: structlog.typing.Processor = structlog.processors.JSONRenderer()
    else:
        # People at a terminal get tracebacks, but without the values of local variables.
        shared.append(redact)
        plain = structlog.dev.plain_traceback
        render = structlog.dev.ConsoleRenderer(colors=output.isatty(), exception_formatter=plain)
    structlog.configure(
        processors=[*shared, render],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelName(level.upper())),
        logger_factory=structlog.PrintLoggerFactory(output),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(output)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, render],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())
    for name in ("httpx2", "httpcore2", "httpx", "httpcore", "openai", "asyncio"):
        # At their info level these tell URLs, which may hold tickets, and request bodies at debug.
        logging.getLogger(name).setLevel(logging.WARNING)
    # The roles say themselves where they listen and when they end.
    logging.getLogger("uvicorn").setLevel(logging.WARNING)


def named(_logger: object, _method: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Processor: a line names its session and turn by these words, however its writer did; what the writer said wins
    over what the request was about."""
    for said, name in _NAMES:
        if said in line:
            line[name] = line.pop(said)
    return line


def redact(_logger: object, _method: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Processor: replaces the values of keys that name secrets or content, at any depth; `event` is ours and stays."""
    for key in line:
        if key not in _MACHINERY:
            line[key] = _clean(key, line[key])
    return line


def without_content_of_errors(
    _logger: object, _method: str, line: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Processor: turns `exc_info` into type and place. An exception's text may quote what it choked on."""
    info = line.pop("exc_info", None)
    if info is True:
        info = sys.exc_info()
    error = info if isinstance(info, BaseException) else info[1] if isinstance(info, tuple) else None
    if error is not None:
        line["error"] = type(error).__qualname__
        line["error_at"] = _places(error)
    return line


class _Labels:
    """Processor: adds what is the same on each line of a process."""

    def __init__(self, labels: dict[str, str]) -> None:
        self._labels = labels

    def __call__(self, _logger: object, _method: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        for key, value in self._labels.items():
            line.setdefault(key, value)
        return line


def _clean(key: str, value: object) -> object:
    name = key.lower()
    if name in _CONTENT or any(word in name for word in _SECRET):
        return REMOVED
    if isinstance(value, str):
        return _IN_URL.sub(rf"\1{REMOVED}", value)
    if isinstance(value, Mapping):
        return {inner: _clean(str(inner), value[inner]) for inner in value}
    if isinstance(value, bytes | bytearray | memoryview):
        return f"[{len(value)} bytes]"
    if isinstance(value, Sequence):
        return [_clean("", item) for item in value]
    return value


def _places(error: BaseException) -> list[str]:
    """The innermost frames, as file:line function."""
    frames = []
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        frames.append(f"{code.co_filename}:{trace.tb_lineno} {code.co_qualname}")
        trace = trace.tb_next
    return frames[-8:]
