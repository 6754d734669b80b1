"""The recorder: a runtime's frames become temporary frames for viewers and event drafts for the store.

It is pure: no I/O but the `publish` it is given, no clock but the `now` it is told. Frame numbers are given in the
order in which things are shown or drafted, so that the numbers of an attempt are dense and ascend in the log."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import msgspec

from domain import frames
from domain.events import item
from domain.events.base import ExecutorEvent
from domain.events.envelope import Draft
from domain.events.naming import is_step
from domain.events.turn import InputRewritten
from domain.ids import TurnId
from domain.parts import Part, Scope
from domain.runtime import RecordedCall, RuntimeFailed
from domain.texts import made_safe
from services.worker.executor.bounds import Bounds
from services.worker.executor.items import Items
from services.worker.executor.progress import Progress
from services.worker.executor.rollups import RollUps
from services.worker.executor.tool_results import ToolResults
from services.worker.executor.values import encoded_size, plain

_DRAFT_BYTES = 400
"""Counted for each draft beside its text: keys, ids, numbers."""

_MESSAGE_ITEMS = 200
"""Items of one message: the room of a message is used up by so many, however short."""


@dataclass(slots=True)
class _Message:
    """What somebody is saying: text that begins now belongs to it while there is room."""

    message_id: str
    room: int


class Recorder:
    """One leg of one attempt. Frames go in by `take`, drafts come out by `drain`; `tick` at `due` keeps time."""

    def __init__(
        self,
        *,
        session_id: str,
        turn_id: str,
        attempt: int,
        frame_base: int,
        publish: Callable[[str, bytes], None],
        roll_up: Callable[[str, bytes], None],
        clear: Callable[[str], None],
        new_id: Callable[[], str],
        bounds: Bounds,
    ) -> None:
        """`publish(item_id, frame)` shows a temporary frame; `roll_up` the same, in place of all earlier ones of its
        item; `clear(item_id)`: nobody needs them any more."""
        self.usage: dict[str, int] = {}
        self.said: list[str] = []
        """Texts of the turn's own agent in this leg."""

        self.pending_bytes = 0
        self._session_id = session_id
        self._turn_id = TurnId(turn_id)
        self._attempt = attempt
        self._frame = frame_base
        self._publish = publish
        self._roll_up = roll_up
        self._clear = clear
        self._new_id = new_id
        self._bounds = bounds
        self._drafts: list[Draft] = []
        self._messages: dict[str | None, _Message] = {}
        self._running: dict[str, frames.ToolStarted] = {}
        self._results = ToolResults(attempt, bounds)
        self._progress = Progress(attempt, self._replace, bounds.delta_seconds)
        self._rollups = RollUps(attempt, self._replace, bounds)
        self._items = Items(
            attempt,
            number=self.next_frame,
            show=self._show,
            write=self._write,
            message_of=self._message_of,
            new_id=new_id,
            bounds=bounds,
            changed=self._rollups.changed,
            completed=self._rollups.completed,
        )

    def resume(self, recorded: Iterable[RecordedCall]) -> None:
        """What earlier attempts and legs of this turn committed of its tool calls."""
        for call in recorded:
            final = call.output is not None
            self._results.known(call.item_id, final=final, revision=call.revision)
            if call.started and not final:
                self._running[call.item_id] = frames.ToolStarted(item_id=call.item_id, tool_call_id=call.tool_call_id)

    def next_frame(self) -> int:
        """Take the next frame number: also for the command that ends the leg."""
        self._frame += 1
        return self._frame

    def take(self, frame: frames.RuntimeFrame, now: float) -> None:
        """Record one frame. Raises RuntimeFailed where it cannot be stored."""
        match frame:
            case frames.ItemDelta():
                self._items.add(frame.item_id, frame.text, now)
            case frames.ItemStarted():
                self._items.start(frame.item_id, frame.kind, frame.scope)
            case frames.ItemEnded():
                self._items.end(frame.item_id, now)
            case frames.ResponseStarted():
                self._messages.pop(_speaker(frame.scope), None)
            case frames.ToolCalled():
                self._call(frame)
            case frames.ToolStarted():
                # Its body may block the loop, and who joins meanwhile needs what there is.
                self._rollups.all()
                self._running[frame.item_id] = frame
                self._write(
                    item.ToolStarted(
                        attempt=self._attempt,
                        frame=self.next_frame(),
                        scope=frame.scope,
                        tool_call_id=made_safe(frame.tool_call_id),
                        item_id=frame.item_id,
                    )
                )
            case frames.ToolProgressed():
                if frame.item_id in self._running:
                    self._progress.update(frame, now)
            case frames.ToolResulted():
                self._result(frame, now)
            case frames.StepReported():
                self._step(frame)
            case frames.UsageReported():
                self._use(frame)
            case frames.Checkpoint():
                if frame.reason == "interrupted":
                    self._items.end_all(now, partial=True)
                self._write(
                    item.CheckpointReached(
                        attempt=self._attempt,
                        frame=self.next_frame(),
                        scope=frame.scope,
                        message_index=frame.message_index,
                        reason=frame.reason,
                    ),
                    frame.private,
                )
            case frames.Together():
                for one in frame.frames:
                    self.take(one, now)
            case _:
                raise TypeError(f"{type(frame).__name__} is not for the recorder")

    def tick(self, now: float) -> None:
        """Show and draft what was held back long enough."""
        self._items.tick(now)
        self._rollups.tick(now)
        self._progress.tick(now)
        self._store_results(self._results.ready(now), now)

    def due(self) -> float | None:
        """When `tick` has something to do; None: nothing is held back."""
        times = (self._items.due(), self._rollups.due(), self._progress.due(), self._results.due())
        return min((time for time in times if time is not None), default=None)

    def rewrite(self, by: str, parts: list[Part]) -> None:
        """A hook gave the turn another input: in the log before anything that was made of it."""
        self._drafts.append(Draft(InputRewritten(by=by, input=parts), self._turn_id))
        self.pending_bytes += _DRAFT_BYTES

    def roll_up_again(self) -> None:
        """Who joins finds nothing: the broker has lost its streams, or had none when the items were shown."""
        self._rollups.again()

    def end(self, now: float, *, partial: bool) -> None:
        """Nothing more comes: open items are closed (`partial`: they were cut off), results are flushed."""
        self._items.end_all(now, partial=partial)
        self._store_results(self._results.unstored(), now)

    def seal(self) -> None:
        """The turn completes: a call that started and has no final result gets one with `end`."""
        for started in self._running.values():
            self._results.seal(started.item_id, made_safe(started.tool_call_id), started.scope)
        self._running.clear()

    def drain(self) -> list[Draft]:
        """All drafts since the last call, in frame order."""
        drafts, self._drafts = self._drafts, []
        self.pending_bytes = 0
        return drafts

    def committed(self, drafts: Iterable[Draft]) -> None:
        """These are in the log, where everybody finds them: temporary frames of their items are of no use any more."""
        for draft in drafts:
            match draft.data:
                case item.ItemCompleted(item_id=item_id):
                    self._clear(item_id)
                case item.ToolResultSnapshot(item_id=item_id, final=True) if self._progress.ended(item_id):
                    self._clear(item_id)

    @property
    def has_drafts(self) -> bool:
        return bool(self._drafts)

    def _show(self, item_id: str, frame: frames.LiveFrame) -> None:
        self._publish(item_id, frames.encode_live(self._session_id, self._turn_id, frame))

    def _replace(self, item_id: str, frame: frames.LiveFrame) -> None:
        self._roll_up(item_id, frames.encode_live(self._session_id, self._turn_id, frame))

    def _write(self, event: ExecutorEvent, private: bytes | None = None) -> None:
        self._drafts.append(Draft(event, self._turn_id, private))
        if isinstance(event, item.ItemCompleted) and event.kind == "text" and event.scope is None and event.text:
            self.said.append(event.text)
        if isinstance(event, item.ItemCompleted) and event.kind == "text":
            self._grow(event)
        text = getattr(event, "text", None) or getattr(event, "output", None) or ""
        self.pending_bytes += _DRAFT_BYTES + len(text) + len(private or b"")

    def _message_of(self, scope: Scope | None) -> str:
        speaker = _speaker(scope)
        message = self._messages.get(speaker)
        if message is None or message.room <= 0:
            message = self._messages[speaker] = _Message(self._new_id(), self._bounds.message_characters)
        return message.message_id

    def _grow(self, event: item.ItemCompleted) -> None:
        message = self._messages.get(_speaker(event.scope))
        if message is not None and message.message_id == event.message_id:
            least = self._bounds.message_characters // _MESSAGE_ITEMS
            message.room -= max(len(event.text or ""), least)

    def _call(self, frame: frames.ToolCalled) -> None:
        arguments = plain(frame.arguments, f"the arguments of {frame.name}")
        size = encoded_size(arguments)
        if size > self._bounds.event_bytes:
            raise RuntimeFailed("too_large", f"The arguments of {frame.name[:100]} have {size} bytes.")
        first = self.next_frame()
        self._show(
            frame.item_id,
            frames.LiveItemStarted(
                item_id=frame.item_id, kind="tool_call", attempt=self._attempt, frame=first, scope=frame.scope
            ),
        )
        self._write(
            item.ItemCompleted(
                attempt=self._attempt,
                frame=self.next_frame(),
                scope=frame.scope,
                item_id=frame.item_id,
                kind="tool_call",
                tool_call=item.ToolCallData(
                    tool_call_id=made_safe(frame.tool_call_id),
                    name=made_safe(frame.name),
                    arguments=arguments,
                    idempotent=frame.idempotent,
                    needs=frame.needs,
                ),
                frames=item.ItemFrames(runs=[(first, 2)], cuts=[]),
            )
        )
        self.pending_bytes += size

    def _result(self, frame: frames.ToolResulted, now: float) -> None:
        self._results.update(
            frame.item_id,
            made_safe(frame.tool_call_id),
            frame.output,
            is_error=frame.is_error,
            final=frame.final,
            private=frame.private,
            scope=frame.scope,
        )
        if frame.final:
            self._running.pop(frame.item_id, None)
            self._progress.finished(frame.item_id)
        self._store_results(self._results.ready(now), now)

    def _store_results(self, item_ids: list[str], now: float) -> None:
        for item_id in item_ids:
            snapshot, private = self._results.take(item_id, self.next_frame(), now)
            self._write(snapshot, private if snapshot.final else None)

    def _step(self, frame: frames.StepReported) -> None:
        payload = plain(frame.payload, f"the payload of {frame.name}")
        size = encoded_size(payload)
        if size > self._bounds.step_bytes:
            payload = {"omitted": "too_large", "original_bytes": size}
        name = plain(frame.name, "the name of a step")[:200]
        if not is_step(name):
            raise RuntimeFailed("agent_error", "The name of a step must be printable and stand in one line.")
        self._write(
            item.RuntimeEvent(
                attempt=self._attempt,
                frame=self.next_frame(),
                scope=frame.scope,
                name=name,
                payload=payload,
            )
        )

    def _use(self, frame: frames.UsageReported) -> None:
        event = item.UsageRecorded(
            attempt=self._attempt,
            frame=self.next_frame(),
            scope=frame.scope,
            model=made_safe(frame.model),
            input_tokens=frame.input_tokens,
            output_tokens=frame.output_tokens,
            cache_read_tokens=frame.cache_read_tokens,
            cache_write_tokens=frame.cache_write_tokens,
            details=frame.details,
        )
        self._write(event)
        self.count(event)

    def count(self, event: item.UsageRecorded) -> None:
        """Add to the turn's usage; also what earlier legs recorded."""
        counted = msgspec.structs.asdict(event)
        self.usage["requests"] = self.usage.get("requests", 0) + 1
        for name in ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens"):
            if counted[name] or name in self.usage or not name.startswith("cache"):
                self.usage[name] = self.usage.get(name, 0) + counted[name]


def _speaker(scope: Scope | None) -> str | None:
    return None if scope is None else scope.run_id
