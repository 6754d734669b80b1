"""`Traces` over OpenTelemetry (the extra `otel`): imported only where a setting asks for it.

Exported by a thread of the SDK's, in batches, to an OTLP collector or into a file. What cannot be exported is dropped:
spans hold nothing up, and the process ends in time without them.
"""

import os
import threading
from collections.abc import Iterator
from collections.abc import Sequence as Many
from contextlib import contextmanager
from pathlib import Path

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

_CLOSE_SECONDS = 0.5
_TURNLOG = "turnlog."
_w3c = TraceContextTextMapPropagator()


class OtelSpan:
    """Implements `infra.telemetry.traces.Span`."""

    __slots__ = ("_span",)

    def __init__(self, span: trace.Span) -> None:
        self._span = span

    @property
    def traceparent(self) -> str:
        context = self._span.get_span_context()
        return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"

    def end(self, failed: str | None = None) -> None:
        if not self._span.is_recording():
            return
        if failed is not None:
            self._span.set_status(trace.StatusCode.ERROR, failed)
        self._span.end()


class OtelTraces:
    """Implements `infra.telemetry.traces.Traces`."""

    def __init__(self, tracer: trace.Tracer) -> None:
        self._tracer = tracer

    def start(self, name: str, parent: str | None, **attributes: str | int | None) -> OtelSpan:
        context = None if parent is None else _w3c.extract({"traceparent": parent})
        named = {_TURNLOG + key: value for key, value in attributes.items() if value is not None}
        # Never the span that happens to be current: a user's library may have set one.
        return OtelSpan(self._tracer.start_span(name, context or Context(), attributes=named))


class FileExporter(SpanExporter):
    """One JSON object a line. Several processes may write to one file, since each batch is one append."""

    def __init__(self, path: Path) -> None:
        """Raises OSError."""
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def export(self, spans: Many[ReadableSpan]) -> SpanExportResult:
        lines = "".join(span.to_json(indent=None) + "\n" for span in spans)
        try:
            os.write(self._file, lines.encode())
        except OSError:
            return SpanExportResult.FAILURE
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        os.close(self._file)


def otlp() -> SpanExporter:
    """To the collector that OTEL_EXPORTER_OTLP_ENDPOINT names, on this machine by default."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter()


@contextmanager
def exported(exporter: SpanExporter, role: str) -> Iterator[OtelTraces]:
    """Spans of this process while the block runs; OTEL_* variables (sampler, resource, batches) are the SDK's own."""
    resource = Resource.create({"service.name": f"turnlog-{role}", "service.instance.id": str(os.getpid())})
    # No atexit hook: a collector that hangs must not keep the process.
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    try:
        yield OtelTraces(provider.get_tracer("turnlog"))
    finally:
        closing = threading.Thread(target=provider.shutdown, name="last spans", daemon=True)
        closing.start()
        closing.join(_CLOSE_SECONDS)
