"""Frame numbers of one turn's attempts, and how items account for the frames that viewers saw of them."""

from bisect import bisect_right

from domain.events import item, turn
from domain.events.base import Event, ExecutorEvent
from domain.ids import FRAMES_PER_ATTEMPT
from projections.audit.findings import Findings

_LEAVING = (turn.TurnPaused, turn.TurnCompleted)
_STOPPED = (turn.TurnFailed, turn.TurnInterrupted)


def from_outside(event: turn.TurnCompleted) -> bool:
    """The end was not written by the attempt: then it has the first number of the base after it."""
    return event.frame == (event.attempt + 1) * FRAMES_PER_ATTEMPT


class FrameLine:
    """The numbers that the newest attempt has used, as few spans `[begin, end)` in order: open items leave holes, which
    their completion fills."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._begins: list[int] = []
        self._ends: list[int] = []
        self._attempt = 0
        self._newest = -1
        self._blind = False

    def unreadable(self) -> None:
        """An event whose type is not known may have used a number: nothing is said about holes from here on."""
        self._blind = True

    def _started(self, event: turn.TurnStarted, sequence: int) -> None:
        if event.attempt != self._attempt:
            self._attempt = event.attempt
            self._begins, self._ends, self._newest = [], [], -1
        self._single(event.frame_base, event.type, sequence)

    def apply(self, event: Event, sequence: int, *, erased: bool) -> None:
        """An event of the turn: with its number where it has one, an item with all of its numbers."""
        if isinstance(event, ExecutorEvent):
            if isinstance(event, item.ItemCompleted):
                self._ascend(event.frame, event.type, sequence)
                self._item(event, sequence, erased)
            elif not (isinstance(event, turn.TurnCompleted) and from_outside(event)):
                self._single(event.frame, event.type, sequence)
                if isinstance(event, _LEAVING):
                    self._left(event, sequence)
        elif isinstance(event, turn.TurnStarted):
            self._started(event, sequence)
        elif isinstance(event, _STOPPED) and event.frame is not None:
            self._single(event.frame, event.type, sequence)
            self._ended(event, event.frame, sequence)

    def _left(self, event: turn.TurnPaused | turn.TurnCompleted, sequence: int) -> None:
        self._ended(event, event.frame, sequence)
        if isinstance(event, turn.TurnPaused) and event.next_frame != event.frame + 1:
            self._findings.add(sequence, "frames", f"next frame {event.next_frame} after a pause at {event.frame}")

    def _ended(self, event: Event, frame: int, sequence: int) -> None:
        # Nothing is open any more, so nothing may be missing.
        whole = ([self._attempt * FRAMES_PER_ATTEMPT], [frame + 1])
        if (self._begins, self._ends) != whole and not self._blind:
            holes = [f"{end}..{begin - 1}" for begin, end in zip(self._begins[1:], self._ends, strict=False)]
            self._findings.add(sequence, "frames_dense", f"{event.type}: numbers {', '.join(holes[:5])} were not used")

    def _item(self, event: item.ItemCompleted, sequence: int, erased: bool) -> None:
        runs, cuts = event.frames.runs, event.frames.cuts
        count = 0
        last = -1
        for first, length in runs:
            if first <= last or length < 1:
                self._findings.add(sequence, "item_frames", f"the run [{first}, {length}] does not ascend")
                self._blind = True
                return
            last = first + length - 1
            count += length
        if count != len(cuts) + 2 or last != event.frame:
            detail = f"{count} numbers up to {last} for {len(cuts)} deltas, a start and a completion at {event.frame}"
            self._findings.add(sequence, "item_frames", detail)
        elif not erased and sum(cuts) != len(event.text or ""):
            self._findings.add(sequence, "item_frames", f"cuts of {sum(cuts)} for a text of {len(event.text or '')}")
        for first, length in runs:
            self._take(first, first + length, sequence)

    def _single(self, frame: int, type_: str, sequence: int) -> None:
        if self._ends and self._ends[-1] == frame > self._newest:  # the next number, as almost always
            self._ends[-1] = frame + 1
            self._newest = frame
            return
        self._ascend(frame, type_, sequence)
        self._take(frame, frame + 1, sequence)

    def _ascend(self, frame: int, type_: str, sequence: int) -> None:
        if frame < self._newest:
            self._findings.add(sequence, "frames", f"{type_} has number {frame} after {self._newest}")
        else:
            self._newest = frame

    def _take(self, begin: int, end: int, sequence: int) -> None:
        begins, ends = self._begins, self._ends
        if ends and ends[-1] == begin:
            ends[-1] = end
            return
        place = bisect_right(begins, begin)
        if (place and ends[place - 1] > begin) or (place < len(begins) and begins[place] < end):
            self._findings.add(sequence, "frames", f"a number of {begin}..{end - 1} is used twice")
            return
        joins_before = place > 0 and ends[place - 1] == begin
        joins_after = place < len(begins) and begins[place] == end
        if joins_before and joins_after:
            ends[place - 1] = ends.pop(place)
            del begins[place]
        elif joins_before:
            ends[place - 1] = end
        elif joins_after:
            begins[place] = begin
        else:
            begins.insert(place, begin)
            ends.insert(place, end)
