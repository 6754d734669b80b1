"""Spans of a process, where settings ask for them: submit (gateway) → commit, publish (agent) → send (gateway).

The thread between them is a W3C traceparent: in the command, in the metadata of its events, in a header of their
notifications. No envelope has it, so neither viewers nor the log's readers see a difference.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from domain.commands import Command
from domain.errors import TurnlogError
from domain.ports import CommandPipeline, Outcome
from infra.settings import Role, Settings
from infra.telemetry.traces import Span, Traces


class TracingMissing(TurnlogError):
    """Spans are asked for, and nothing is installed that could make them."""

    code = "tracing_missing"
    sentence = "TURNLOG_TRACE_EXPORT={export} needs the extra otel ({reason}): install turnlog[otel], or set it to off."


class NoTraceFile(TurnlogError):
    """The file for spans cannot be written."""

    code = "no_trace_file"
    sentence = "TURNLOG_TRACE_FILE: {file} cannot be written ({reason})."


@contextmanager
def traced(settings: Settings, role: Role) -> Iterator[Traces | None]:
    """Where spans of this process begin while the block runs; None where they are off, which imports nothing. Raises
    TracingMissing, NoTraceFile."""
    if settings.trace.export == "off":
        yield None
        return
    try:
        from infra.telemetry import otel

        exporter = otel.otlp() if settings.trace.export == "otlp" else otel.FileExporter(settings.trace.path())
    except ImportError as error:
        raise TracingMissing(export=settings.trace.export, reason=str(error)) from error
    except OSError as error:
        raise NoTraceFile(file=str(settings.trace.file), reason=error.strerror) from error
    with otel.exported(exporter, role) as traces:
        yield traces


class TracedPipeline:
    """A command pipeline whose commands are spans, from their arrival to their commit: those that came with a
    trace."""

    def __init__(self, pipeline: CommandPipeline, traces: Traces) -> None:
        self._pipeline = pipeline
        self._traces = traces

    async def execute(self, command: Command, *, deadline: float | None = None) -> Outcome:
        """See `CommandPipeline`."""
        if command.trace is None:
            return await self._pipeline.execute(command, deadline=deadline)
        with ended(begun(self._traces, "commit", command)) as span:
            command = msgspec.structs.replace(command, trace=span.traceparent)
            return await self._pipeline.execute(command, deadline=deadline)


def begun(traces: Traces, name: str, command: Command) -> Span:
    """A span of that command, behind the step that it came from."""
    return traces.start(
        name,
        command.trace,
        command=str(type(command).__struct_config__.tag),
        session_id=command.session_id,
        turn_id=getattr(command, "turn_id", None),
    )


@contextmanager
def ended(span: Span) -> Iterator[Span]:
    """Ends the span with the block, with the code of what was raised."""
    try:
        yield span
    except TurnlogError as error:
        span.end(error.code)
        raise
    finally:
        span.end()
