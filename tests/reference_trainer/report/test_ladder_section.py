"""The ladder: sentences from the numbers, the waterfall's levels, the table of cures, gaps with their reasons."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from profiler.analyse.model import Measure, Ratio
from profiler.report import blocks
from profiler.report.build import build_report
from reference_trainer.report.ladder import Ladder, LadderRow, listed
from reference_trainer.report.ladder_section import PLUGIN, said
from tests.fakes.sentences import note
from tests.report import ladders, samples
from tests.report.test_build import of_kind, text_of

SLOWER = (
    " Slower where it was added: zero-copy (0.930×, 95% 0.903 to 0.958); slower alone, over as-found: "
    "blocking-wait (0.970×, 95% 0.941 to 1.00)."
)


def with_gains(kind: str, **gains: Ratio) -> Ladder:
    """The made-up ladder with other gains in rows of one kind; a fix's name with _ for -."""
    found = ladders.ladder()
    rows = (
        replace(row, gain=gains[row.fix.replace("-", "_")])
        if row.kind == kind and row.fix.replace("-", "_") in gains
        else row
        for row in found.rows
    )
    return replace(found, rows=tuple(rows))


def all_gains(kind: str, gain: Ratio) -> Ladder:
    return with_gains(kind, **{name.replace("-", "_"): gain for name in ladders.CURES})


def sentence(found: Ladder) -> str:
    return said(found.cures(), found.rounds)


def falls(found: Ladder) -> blocks.Waterfall:
    return of_kind(ladders.with_ladder(found), "ladder", blocks.Waterfall)[0]


def table(found: Ladder, caption: str) -> blocks.Table:
    tables = of_kind(ladders.with_ladder(found), "ladder", blocks.Table)
    return next(one for one in tables if one.caption == caption)


def test_only_a_comparison_with_a_ladder_has_the_section() -> None:
    assert samples.build_section(PLUGIN, samples.comparison()) is None
    assert samples.build_section(PLUGIN, samples.analysis()) is None
    keys = [section.key for section in build_report(ladders.with_ladder()).sections]
    assert keys[1:5] == ["throughput", "ladder", "quick-fix", "claims"]


def test_the_sentence_names_carriers_by_their_leaving_out_and_what_cannot_be_told() -> None:
    assert sentence(ladders.ladder()) == (
        "Left out one at a time, async (9.20×, with the 2 that need it) costs most tokens a second, then "
        "batch-recurrence (6.30×) and batch-decode (4.10×); pooled, quiet-logging and blocking-wait could not be told "
        "from no effect on this machine; the full set is slower with zero-copy (0.940×)." + SLOWER
    )


def test_the_sentence_follows_the_numbers() -> None:
    other = with_gains("without", pooled=ladders.gain(20.0))
    assert sentence(other).startswith("Left out one at a time, pooled (20.0×) costs most")
    assert sentence(all_gains("without", ladders.gain(1.001))) == (
        "Left out one at a time, none of the 12 cures could be told from no effect on this machine, with 7 rounds."
        + SLOWER
    )
    slower = all_gains("without", ladders.gain(1.001))
    rows = (
        replace(row, gain=ladders.gain(0.5)) if (row.kind, row.fix) == ("without", "async") else row
        for row in slower.rows
    )
    text = sentence(replace(slower, rows=tuple(rows)))
    assert text.startswith("Left out one at a time, no cure was seen to give anything; batch-tokenize, batch-embed, ")
    assert text.endswith(
        "could not be told from no effect on this machine; the full set is slower with async (0.500×)." + SLOWER
    )


def test_what_slowed_down_where_it_was_added_is_said() -> None:
    """Only where the whole interval lies below 1; no word of it where there is nothing of the kind."""
    slowed = sentence(with_gains("cumulative", parallel_tokenize=ladders.gain(0.872, 0.05)))
    assert "Slower where it was added: zero-copy (0.930×, 95% 0.903 to 0.958) and parallel-tokenize (0.872×, " in slowed
    neither = with_gains("cumulative", zero_copy=ladders.gain(0.93, 0.2))
    rows = (replace(row, gain=ladders.gain(1.0)) if row.kind == "alone" else row for row in neither.rows)
    assert "lower" not in sentence(replace(neither, rows=tuple(rows))).partition("zero-copy (0.940×)")[2]


def test_one_round_claims_nothing() -> None:
    one = Ratio("tokens_per_s", 3.0, None, None, 1, different=False, reason=note("one pair: no interval"))
    text = sentence(replace(all_gains("without", one), rounds=1))
    assert text.startswith("With one round no effect can be told from chance; left out one at a time, the largest: ")
    found = replace(all_gains("cumulative", one), rounds=1)
    steps = falls(found).stairs[1:-1]
    assert {stair.kind for stair in steps} == {"unknown"}
    assert "no difference seen" not in text_of(steps)
    assert steps[0].small_print() == "one pair: no interval"


def test_what_was_not_measured_is_named_with_its_reason() -> None:
    absent = ladders.none("not comparable: corpus differs")
    text = sentence(with_gains("without", prefetch=absent))
    assert text.endswith("; not measured: prefetch." + SLOWER)
    everything = sentence(all_gains("without", absent))
    assert everything == (
        "What each cure gives on top of the others was not measured: not comparable: corpus differs." + SLOWER
    )
    cells = table(with_gains("without", prefetch=absent), "What each cure gives").rows[8]
    assert cells[0].text == "prefetch"
    assert cells[3].missing == "not comparable: corpus differs"


def test_levels_climb_by_the_paired_factors() -> None:
    stairs = falls(ladders.ladder()).stairs
    start, total = stairs[0], stairs[-1]
    assert (start.kind, start.begin, start.end) == ("start", None, ladders.BASE)
    assert (total.kind, total.begin, total.label, total.note) == ("total", ladders.BASE, "fixed", "all 12 cures")
    for before, after, added in zip(stairs, stairs[1:-1], (cure[3] for cure in ladders.CURES.values()), strict=False):
        assert after.begin == before.end
        assert after.end == pytest.approx(before.end * added)
        assert after.low == pytest.approx(before.end * added * math.exp(-0.03))
    assert total.end == stairs[-2].end
    assert total.text == "59.6×"


def test_steps_without_a_difference_are_drawn_as_such() -> None:
    kinds = {stair.label: stair.kind for stair in falls(ladders.ladder()).stairs}
    assert kinds["+ batch-tokenize"] == kinds["+ pooled"] == "same"
    assert kinds["+ zero-copy"] == "loss"
    assert kinds["+ async"] == "gain"
    same = next(stair for stair in falls(ladders.ladder()).stairs if stair.kind == "same")
    assert same.conclusion.endswith("no difference seen")


def test_a_row_that_was_not_measured_breaks_no_other() -> None:
    found = ladders.ladder()
    gone = ladders.none("not comparable: tokenizer differs")
    rows = (
        replace(row, gain=gone, total=gone) if row.kind == "cumulative" and row.fix == "async" else row
        for row in found.rows
    )
    stairs = {stair.label: stair for stair in falls(replace(found, rows=tuple(rows))).stairs}
    assert (stairs["+ async"].text, stairs["+ async"].end) == ("not measured", None)
    assert stairs["+ async"].interval == "not comparable: tokenizer differs"
    assert stairs["+ batch-embed"].begin is None
    assert stairs["+ batch-recurrence"].begin == stairs["+ batch-embed"].end


def test_no_throughput_as_found_is_a_gap_with_its_reason() -> None:
    found = ladders.ladder()
    absent = {"tokens_per_s": Measure("tokens_per_s", None, "tokens/s", reason=note("no step was closed"))}
    rows = (replace(found.rows[0], measures=absent), *found.rows[1:])
    gaps = of_kind(ladders.with_ladder(replace(found, rows=rows)), "ladder", blocks.NotMeasured)
    assert [gap.reason for gap in gaps] == ["no step was closed"]


def test_the_table_has_a_row_a_cure_with_three_effects_and_its_load_warnings() -> None:
    rows = table(ladders.ladder(), "What each cure gives").rows
    assert [row[0].text for row in rows] == list(ladders.CURES)
    by_name = {row[0].text: row for row in rows}
    assert [cell.sort for cell in by_name["batch-embed"][1:4]] == [1.31, 1.45, 1.9]
    assert by_name["batch-embed"][1].interval == "1.27 to 1.35"
    assert by_name["pooled"][3].note.endswith("no difference seen")
    assert by_name["prefetch"][4].text == "alone: async, device-loss and zero-copy"
    assert by_name["async"][4].text == "left out: prefetch and quiet-logging"
    assert by_name["async"][0].note == "removes: " + ladders.CURES["async"][0]
    assert by_name["async"][5].text == "per-token-sync"


def test_no_rule_is_said_to_have_found_anything() -> None:
    found = table(ladders.ladder(), "What each cure gives")
    assert found.columns[5].title == "Rule (planned)"
    assert "none is written yet" in found.note


def test_other_work_stands_apart_and_says_why() -> None:
    others = table(ladders.ladder(), "Not like for like")
    pretokenize, learn = others.rows
    assert pretokenize[2].sort == 1.07
    assert learn[2].text == "no ratio"
    assert learn[0].note == "removes: a loss that teaches nothing"
    assert "no ratio of theirs is like for like" in others.note
    assert "pretokenize: in place of batch-tokenize and parallel-tokenize; what was done before" in others.note
    assert (
        "learn: does other work: no like-for-like ratio; its tokens a second are held against nothing." in others.note
    )
    assert "learn" not in [row[0].text for row in table(ladders.ladder(), "What each cure gives").rows]


def test_cures_that_cannot_run_here_have_their_reason() -> None:
    items = of_kind(ladders.with_ladder(), "ladder", blocks.Items)
    assert [(one.title, one.items) for one in items] == [
        ("Not available on the host device (CPU)", ("cuda-graph: there is no CUDA device here",))
    ]


@pytest.mark.parametrize(
    ("rounds", "words"),
    [(0, "no round of the ladder was"), (1, "1 round of the ladder was"), (3, "3 rounds of the ladder were")],
)
def test_an_interrupted_ladder_says_so_first(rounds: int, words: str) -> None:
    found = replace(ladders.ladder(), rounds=rounds, interrupted=True)
    first = samples.build_section(PLUGIN, ladders.with_ladder(found))
    assert first is not None
    warning = first.blocks[0]
    assert isinstance(warning, blocks.Callout)
    assert (warning.tone, words in warning.text) == ("warning", True)
    assert first.brief[0] == warning


def test_an_empty_ladder_is_a_gap() -> None:
    gaps = of_kind(ladders.empty_ladder(), "ladder", blocks.NotMeasured)
    assert [gap.reason for gap in gaps] == ["no round was complete"]


def test_rows_of_one_kind_only_still_make_a_table() -> None:
    found = ladders.ladder()
    rows: tuple[LadderRow, ...] = tuple(row for row in found.rows if row.kind in {"baseline", "alone"})
    cells = table(replace(found, rows=rows), "What each cure gives").rows[1]
    assert cells[1].sort == 2.1
    assert cells[2].missing == cells[3].missing == "the ladder has no such row"


def test_names_in_a_list() -> None:
    assert [listed(names) for names in ((), ("a",), ("a", "b"), ("a", "b", "c"))] == ["", "a", "a and b", "a, b and c"]
