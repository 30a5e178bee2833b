"""The picture of a timeline: columns, ticks, and the events that the page's script reads."""

from __future__ import annotations

import json
import random
import zlib
from base64 import b64decode
from itertools import pairwise

import pytest

from profiler.report.blocks import TimelineChart, TimelineGroup, TimelineKind, TimelineTrack
from profiler.report.render.figures import cell_runs, script_data, text_rows, ticks

KINDS = (TimelineKind("copy", "c3", "d2h"), TimelineKind("launch", "c4", "</script><b>"))
IDLE = TimelineKind("device idle", "idle", "idle")
TONES = [kind.tone for kind in KINDS]


def track(*parts: tuple[int, int, int]) -> TimelineTrack:
    begin, end, kind = zip(*parts, strict=True) if parts else ((), (), ())
    return TimelineTrack("device", begin, end, kind, IDLE)


def chart(*tracks: TimelineTrack, length: int = 100) -> TimelineChart:
    return TimelineChart("t", length, (TimelineGroup("side", "", tracks),), KINDS)


def painted(drawn: TimelineTrack, length: int, cells: int) -> list[str]:
    """The tone of each column."""
    columns = [""] * cells
    for first, last, tone in cell_runs(drawn, TONES, length, cells):
        assert 0 <= first < last <= cells
        assert not any(columns[first:last]), "columns are painted once"
        columns[first:last] = [tone] * (last - first)
    return columns


def test_a_shared_column_has_the_tone_with_the_largest_share() -> None:
    assert painted(track((0, 3, 0), (3, 10, 1)), 20, 2) == ["c4", ""]
    assert painted(track((0, 6, 0), (6, 10, 1), (11, 13, 0)), 20, 2) == ["c3", ""]
    assert painted(track((0, 25, 0), (27, 40, 1)), 40, 4) == ["c3", "c3", "c3", "c4"]


@pytest.mark.parametrize("seed", range(30))
def test_columns_are_those_of_a_count_by_nanosecond(seed: int) -> None:
    draw = random.Random(seed)
    cells, width = 25, 8
    length, now, parts = cells * width, 0, []
    while now < length:
        now += draw.choice((0, 0, 1, 3, 20))
        end = min(length, now + draw.choice((1, 2, 3, 9, 40)))
        if now < end:
            parts.append((now, end, draw.randrange(2)))
        now = end
    by_ns = [""] * length
    for begin, end, kind in parts:
        by_ns[begin:end] = [TONES[kind]] * (end - begin)
    for number, tone in enumerate(painted(track(*parts), length, cells)):
        counts = {each: by_ns[number * width : (number + 1) * width].count(each) for each in ("", *TONES)}
        assert counts[tone] == max(counts.values()), (number, tone, counts)


@pytest.mark.parametrize("length", [7, 90, 1_263_000, 25_000_000, 999_999_999, 3_600_000_000_000])
def test_ticks_are_few_and_evenly_spaced_from_zero(length: int) -> None:
    marks = ticks(length)
    assert 3 <= len(marks) <= 7
    assert marks[0][0] == 0.0
    assert marks[0][1].split()[1] in ("ns", "µs", "ms", "s")
    gaps = [b - a for (a, _), (b, _) in pairwise(marks)]
    assert max(gaps) - min(gaps) < 1e-9
    assert marks[-1][0] <= 1.0


def test_the_script_gets_every_part_and_no_text_ends_its_element() -> None:
    parts = ((0, 3, 0), (5, 300, 1), (300, 70_000, 0))
    text = script_data(chart(track(*parts), track(), length=100_000))
    assert "<" not in text
    data = json.loads(zlib.decompress(b64decode(text)))
    assert data["kinds"][1] == ["launch", "c4", "</script><b>"]
    assert data["tracks"] == [["idle", [0, 2, 0], [3, 295, 69_700], [0, 1, 0]], ["idle", [], [], []]]


def test_shares_stand_for_the_picture_where_there_is_none() -> None:
    rows = text_rows(chart(track((0, 10, 0), (20, 40, 1), (50, 51, 0))))
    assert rows == [("side", "device", "device idle 69%, launch 20%, copy 11%")]
