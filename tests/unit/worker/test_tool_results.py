"""Tool results: cut once, and only the newest changed state now and then."""

import itertools

import pytest

from services.worker.executor.bounds import Bounds
from services.worker.executor.tool_results import ToolResults, cut


@pytest.mark.parametrize("unit", ["x", "é", "漢", "😀", "aé漢😀"])
@pytest.mark.parametrize("limit", [10, 11, 12, 13, 64])
def test_cut_never_ends_inside_a_code_point(unit: str, limit: int) -> None:
    text = unit * 100
    kept = cut(text, limit)
    assert kept.truncated
    assert text.startswith(kept.text)
    assert kept.stored_bytes == len(kept.text.encode()) <= limit
    assert limit - kept.stored_bytes < 4
    assert kept.original_bytes == len(text.encode())


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65])
def test_only_what_is_longer_is_cut(size: int) -> None:
    kept = cut("x" * size, 64)
    assert kept.truncated == (size > 64)
    assert kept.stored_bytes == min(size, 64)
    assert kept.original_bytes == size


def test_unsafe_text_is_replaced_and_still_fits() -> None:
    kept = cut("\0" * 100, 64)
    assert set(kept.text) == {"\ufffd"}
    assert kept.stored_bytes <= 64
    assert kept.truncated
    assert cut("a\ud800", 64).text == "a\ufffd"


class Calls:
    """Results of one call, told what time it is."""

    def __init__(self) -> None:
        self.results = ToolResults(1, Bounds())
        self.frames = 0
        self.stored: list[tuple[float, str, bool]] = []

    def update(self, now: float, output: str, *, final: bool = False) -> None:
        self.results.update("i", "c", output, is_error=False, final=final, private=None, scope=None)
        self.tick(now)

    def tick(self, now: float) -> None:
        for item_id in self.results.ready(now):
            self.frames += 1
            snapshot, _ = self.results.take(item_id, self.frames, now)
            assert snapshot.revision == len(self.stored) + 1
            self.stored.append((now, snapshot.output, snapshot.final))


def test_first_at_once_then_the_newest_changed_every_interval() -> None:
    calls = Calls()
    calls.update(0.0, "a")
    for now in range(1, 10):
        calls.update(now * 0.05, f"a{now}")
    assert calls.stored == [(0.0, "a", False), (pytest.approx(0.3), "a6", False)]
    assert calls.results.due() == pytest.approx(0.6)
    calls.tick(0.61)
    assert calls.stored[-1] == (0.61, "a9", False)


def test_an_unchanged_state_is_not_stored_again_but_its_end_is() -> None:
    calls = Calls()
    calls.update(0.0, "same")
    calls.update(1.0, "same")
    assert calls.results.due() is None
    assert calls.results.unstored() == []
    calls.update(2.0, "same", final=True)
    assert [final for _, _, final in calls.stored] == [False, True]


def test_large_results_are_stored_less_and_less_often() -> None:
    calls = Calls()
    for step in range(600):
        calls.update(step * 0.05, "x" * 9000 + str(step))
    times = [now for now, _, _ in calls.stored]
    gaps = [after - before for before, after in itertools.pairwise(times)]
    assert gaps[:5] == [pytest.approx(gap, abs=0.06) for gap in (0.3, 0.6, 1.2, 2.4, 4.8)]
    assert max(gaps) == pytest.approx(5.0, abs=0.06)


def test_nothing_counts_after_the_final_result() -> None:
    calls = Calls()
    calls.update(0.0, "end", final=True)
    calls.update(1.0, "late")
    calls.update(2.0, "later", final=True)
    assert calls.stored == [(0.0, "end", True)]


def test_a_call_without_an_end_is_sealed() -> None:
    calls = Calls()
    calls.update(0.0, "so far")
    calls.results.seal("i", "c", None)
    calls.results.seal("j", "d", None)
    assert calls.results.unstored() == ["i", "j"]
    assert calls.results.take("i", 9, 1.0)[0].final
    sealed = calls.results.take("j", 10, 1.0)[0]
    assert sealed.is_error
    assert sealed.final
