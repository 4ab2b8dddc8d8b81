"""Where histories part: any sequence of commits, openings, copies and copies that are put back.

Pure: a log is its chunks and runs; a digest is all chunks before it.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from hashlib import sha256

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.store.history import DigestAt, History, add_run, judge, mark_at
from penstock.store.mark import NO_MARK, Mark, Run, Verdict, parse_mark
from tests.support.budget import budget

EPOCH = "20270115T080000-00000000"


@dataclass
class Log:
    """A log in a directory; ``open`` is what a start of the broker does."""

    chunks: list[tuple[int, str]] = field(default_factory=list)  # end and content
    runs: list[Run] = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.chunks[-1][0] if self.chunks else 0

    @property
    def history(self) -> History:
        return History(EPOCH, (), self.runs, self.end)

    def open(self, name: str) -> None:
        self.runs = add_run(self.runs, EPOCH, self.end, name)

    def digests(self, earliest: int = 0) -> DigestAt:
        def digest_at(offset: int) -> bytes | None:
            before = [chunk for chunk in self.chunks if chunk[0] < offset]
            if offset <= earliest or len(before) == len(self.chunks):
                return None
            return sha256(repr(self.chunks[: len(before) + 1]).encode()).digest()

        return digest_at

    def common_end(self, other: Log) -> int:
        """Up to which offset both have the same chunks."""
        end = 0
        for ours, theirs in zip(self.chunks, other.chunks, strict=False):
            if ours != theirs:
                break
            end = ours[0]
        return end


STEPS = st.lists(  # a commit of so many messages, then something with the copy of that number
    st.tuples(
        st.integers(0, 5),
        st.sampled_from(["go on", "restart", "copy", "put back"]),
        st.integers(0, 9),
    ),
    max_size=8,
)


@settings(max_examples=budget(500), deadline=None)
@given(STEPS, st.integers(0, 30))
def test_a_position_is_judged_right_whatever_copies_were_put_back(
    steps: list[tuple[int, str, int]], earliest: int
) -> None:
    """Also where retention has removed the messages before ``earliest``."""
    log = Log()
    log.open("0" * 12)
    copies = [copy.deepcopy(log)]
    seen: list[tuple[int, Mark, Log]] = []  # positions, with the log that they are of
    for number, (count, then, which) in enumerate(steps, 1):
        name = f"{number:012x}"
        if count:
            log.chunks.append((log.end + count, name))
        of, digests = copy.deepcopy(log), log.digests()
        offsets = {log.end, max(1, log.end - 1)} if log.end else set()
        seen += [(offset, mark_at(log.history, digests, offset), of) for offset in offsets]
        if then == "restart":
            log.open(name)
        elif then == "copy":
            copies.append(of)
        elif then == "put back":
            copies.append(of)  # what is taken away may come back, too
            log = copy.deepcopy(copies[which % len(copies)])
            log.open(name)
    trimmed = min(earliest, log.end)
    for offset, mark, of in seen:
        assert parse_mark(str(mark)) == mark
        common = log.common_end(of)
        expected = Verdict(True) if offset <= common else Verdict(False, common)
        for digests in (log.digests(), log.digests(trimmed)):
            assert judge(log.history, digests, EPOCH, offset, mark) == expected


def test_former_epochs_are_the_same_up_to_where_the_log_left_any_later_one() -> None:
    history = History("e4", [("e1", 100), ("e2", 50), ("e3", 70)], [], 90)
    assert history.ends() == {"e3": 70, "e2": 50, "e1": 50}

    def judged(epoch: str, offset: int) -> Verdict:
        return judge(history, lambda _: None, epoch, offset, NO_MARK)

    assert judged("e1", 50) == judged("e3", 70) == judged("e4", 90) == Verdict(True)
    assert judged("e1", 51) == judged("e2", 100) == Verdict(False, 50)
    assert judged("e3", 71) == Verdict(False, 70)
    assert judged("e4", 91) == judged("e5", 1) == judged("e5", 0) == Verdict(False)
