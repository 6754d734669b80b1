"""What is kept of a session's newest events gives what the store would give, or nothing, in bounded memory."""

from hypothesis import given
from hypothesis import strategies as st

from services.gateway.sse import frames
from services.gateway.sse.tail import KeptPage, Tail, Tails

EVENTS = 40
SIZES = (5, 400, 30, 2_500)


def block(sequence: int) -> bytes:
    """Of different sizes, one of them larger than a tail; the next id stands in the data of some."""
    pad = b"x" * SIZES[sequence % 4 if sequence % 13 else 3]
    data = b'{"sequence":%d,"data":"id: %d %b"}' % (sequence, sequence + 1, pad)
    return frames.event(sequence, "runtime.event", data)


BLOCKS = {sequence: block(sequence) for sequence in range(1, EVENTS + 1)}


def page_of(first: int, count: int, head: int) -> KeptPage:
    last = min(first + count - 1, head)
    body = b"".join(BLOCKS[sequence] for sequence in range(first, last + 1))
    return KeptPage(first, last, head, False, body)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), st.tuples(st.integers(1, 5))),
        st.tuples(st.just("read"), st.tuples(st.integers(1, EVENTS), st.integers(1, 9))),
        st.tuples(st.just("miss"), st.tuples(st.integers(1, 3))),
        st.tuples(st.just("other"), st.tuples(st.integers(1, 2_000))),
        st.tuples(st.just("clear"), st.just(())),
    ),
    max_size=40,
)


@given(STEPS, st.integers(600, 3_000), st.integers(600, 6_000))
def test_it_gives_what_the_store_gives_or_nothing(
    steps: list[tuple[str, tuple[int, ...]]], most: int, limit: int
) -> None:
    tails = Tails(limit)
    tail, other = Tail(tails, most), Tail(tails, most)
    head = others = 0
    for step in steps:
        match step:
            case "commit", (count,):
                for _ in range(min(count, EVENTS - head)):
                    head += 1
                    tail.append(head, BLOCKS[head])
            case "miss", (count,):
                head = min(head + count, EVENTS)
            case "read", (first, count) if first <= head:
                tail.add(page_of(first, count, head))
            case "other", (size,):
                others += 1
                other.append(others, b"y" * size)
            case "clear", _:
                tail.clear()
        for cursor in range(head + 1):
            kept = tail.after(cursor)
            if kept is not None:
                assert cursor < kept.last <= head
                assert kept.body == page_of(cursor + 1, kept.last - cursor, head).body
        assert 0 <= tails.used <= limit
    tail.clear()
    other.clear()
    assert tails.used == 0


def test_an_erase_leaves_nothing_and_a_storm_shares_one_copy() -> None:
    tails = Tails(1 << 20)
    tail = Tail(tails, 1 << 16)
    tail.add(page_of(1, 20, 20))
    first = tail.after(5)
    assert first is not None
    assert tail.after(5) is first
    tail.add(page_of(3, 4, 20))
    assert tail.after(2) is not None
    erased = frames.event(21, "session.erased", b"{}")
    tail.add(KeptPage(21, 21, 21, False, erased))
    assert tail.after(5) is None
    assert (kept := tail.after(20)) is not None
    assert kept.body == erased
