"""Tool results on their way to the log: cut once, and only the newest changed state every now and then."""

from dataclasses import dataclass

import msgspec

from domain.events.item import ToolResultSnapshot
from domain.parts import Scope
from domain.texts import cut_utf8, made_safe
from services.worker.executor.bounds import Bounds


class Output(msgspec.Struct, frozen=True):
    """A result as it is kept: at most the limit, ending on a code point border."""

    text: str
    truncated: bool
    original_bytes: int
    stored_bytes: int


def cut(output: str, limit: int) -> Output:
    """The one place where a result is cut and made safe."""
    whole = output.encode("utf-8", "surrogatepass")
    safe = made_safe(cut_utf8(whole, limit).decode("utf-8", "surrogatepass")).encode()
    kept = cut_utf8(safe, limit)
    return Output(
        text=kept.decode(),
        truncated=len(whole) > limit or len(kept) < len(safe),
        original_bytes=len(whole),
        stored_bytes=len(kept),
    )


@dataclass(slots=True)
class Result:
    """The result of one call: what is stored, and what is newer."""

    tool_call_id: str
    scope: Scope | None
    newest: Output
    is_error: bool
    final: bool
    private: bytes | None = None
    stored: tuple[Output, bool] | None = None
    revision: int = 0
    interval: float | None = None
    next_at: float = 0.0

    @property
    def changed(self) -> bool:
        return self.stored != (self.newest, self.is_error)


class ToolResults:
    """Results of the calls of an attempt. Calls without a final result stay here; `forget` never happens within an
    attempt, since a late update of a finished call must be dropped."""

    def __init__(self, attempt: int, bounds: Bounds) -> None:
        self._attempt = attempt
        self._bounds = bounds
        self._open: dict[str, Result] = {}
        self._final: set[str] = set()
        self._revisions: dict[str, int] = {}

    def known(self, item_id: str, *, final: bool, revision: int) -> None:
        """What earlier attempts and legs recorded of a call: a final result is never recorded again."""
        if final:
            self._final.add(item_id)
        else:
            self._revisions[item_id] = revision

    def update(
        self,
        item_id: str,
        tool_call_id: str,
        output: str,
        *,
        is_error: bool,
        final: bool,
        private: bytes | None,
        scope: Scope | None,
    ) -> None:
        """A newer state. After the final one nothing counts any more."""
        if item_id in self._final:
            return
        newest = cut(output, self._bounds.result_bytes)
        known = self._open.get(item_id)
        if known is None:
            revision = self._revisions.get(item_id, 0)
            self._open[item_id] = Result(tool_call_id, scope, newest, is_error, final, private, revision=revision)
        else:
            known.newest, known.is_error, known.final, known.private = newest, is_error, final, private

    def ready(self, now: float) -> list[str]:
        """Items whose newest state is to be stored now."""
        return [
            item_id
            for item_id, result in self._open.items()
            if result.final or (result.changed and now >= result.next_at)
        ]

    def unstored(self) -> list[str]:
        """Items whose newest state is not stored: what the flush before a terminal event takes."""
        return [item_id for item_id, result in self._open.items() if result.final or result.changed]

    def due(self) -> float | None:
        """When something will be ready."""
        return min((result.next_at for result in self._open.values() if result.changed), default=None)

    def seal(self, item_id: str, tool_call_id: str, scope: Scope | None) -> None:
        """The turn completes although this call never got a final result: its newest state is the last, or an error."""
        known = self._open.get(item_id)
        if known is not None:
            known.final = True
        else:
            self.update(
                item_id,
                tool_call_id,
                "The tool gave no result.",
                is_error=True,
                final=True,
                private=None,
                scope=scope,
            )

    def take(self, item_id: str, frame: int, now: float) -> tuple[ToolResultSnapshot, bytes | None]:
        """The event for the newest state, which counts as stored from here on, and its private part."""
        result = self._open[item_id]
        result.revision += 1
        result.stored = (result.newest, result.is_error)
        shortest, longest = self._bounds.snapshot_seconds, self._bounds.slowest_snapshot_seconds
        large = result.newest.stored_bytes > self._bounds.large_result_bytes
        interval = result.interval if large and result.interval is not None else shortest
        result.next_at = now + interval
        result.interval = min(interval * 2, longest)
        if result.final:
            del self._open[item_id]
            self._final.add(item_id)
        snapshot = ToolResultSnapshot(
            attempt=self._attempt,
            frame=frame,
            scope=result.scope,
            tool_call_id=result.tool_call_id,
            item_id=item_id,
            revision=result.revision,
            final=result.final,
            output=result.newest.text,
            is_error=result.is_error,
            truncated=result.newest.truncated,
            original_bytes=result.newest.original_bytes,
            stored_bytes=result.newest.stored_bytes,
        )
        return snapshot, result.private
