"""History by parent walk: forks cut their source, and only what they cut."""

import itertools

import msgspec

from domain.history import Segment, segments
from domain.ids import Sequence, TurnId
from domain.parts import ForkSource


class Link(msgspec.Struct):
    turn_id: TurnId
    first_sequence: Sequence
    parent_turn_id: TurnId | None = None
    forked_from: ForkSource | None = None


def chain(*links: tuple[str, int, ForkSource | None]) -> list[Link]:
    """Nearest first; each one's parent is the next."""
    made = [Link(TurnId(name), Sequence(first), None, source) for name, first, source in links]
    for child, parent in itertools.pairwise(made):
        child.parent_turn_id = parent.turn_id
    return made


def seen(links: list[Link]) -> list[tuple[str, int | None]]:
    return [(segment.turn_id, segment.up_to) for segment in segments(links)]


def test_a_plain_line_counts_whole_and_oldest_first() -> None:
    assert seen(chain(("t3", 20, None), ("t2", 10, None), ("t1", 2, None))) == [("t1", None), ("t2", None)]
    assert segments(chain(("t1", 2, None))) == []
    assert segments([]) == []


def test_a_fork_at_a_checkpoint_counts_up_to_it() -> None:
    links = chain(("f", 30, ForkSource(turn_id="t2", sequence=15)), ("t2", 10, None), ("t1", 2, None))
    assert seen(links) == [("t1", None), ("t2", 15)]


def test_a_fork_at_the_end_counts_its_source_whole() -> None:
    links = chain(("f", 30, ForkSource(turn_id="t2")), ("t2", 10, None), ("t1", 2, None))
    assert seen(links) == [("t1", None), ("t2", None)]


def test_a_fork_from_the_last_user_takes_the_place_of_its_source() -> None:
    links = chain(("f", 30, ForkSource(turn_id="t2", sequence=10)), ("t2", 10, None), ("t1", 2, None))
    assert seen(links) == [("t1", None)]


def test_the_regenerated_of_a_regenerated_takes_the_first_ones_place() -> None:
    links = chain(
        ("r2", 40, ForkSource(turn_id="r1", sequence=30)),
        ("r1", 30, ForkSource(turn_id="t2", sequence=10)),
        ("t2", 10, None),
        ("t1", 2, None),
    )
    assert seen(links) == [("t1", None)]


def test_a_plain_turn_after_a_fork_keeps_the_forks_cut() -> None:
    links = chain(
        ("t4", 50, None),
        ("f", 30, ForkSource(turn_id="t2", sequence=15)),
        ("t2", 10, None),
        ("t1", 2, None),
    )
    assert seen(links) == [("t1", None), ("t2", 15), ("f", None)]
    assert segments(links)[1] == Segment(TurnId("t2"), Sequence(15))
