"""The sentence about a ladder: which fixes count on top of all others, and which cannot be told from no effect."""

from __future__ import annotations

from dataclasses import replace

from profiler.analyse.compare.comparison import compare
from profiler.analyse.model import Ratio
from reference_trainer.report.ladder_plan import plan_ladder
from tests.fakes.ladders import fix_list, made_up, speeds
from tests.fakes.sentences import compare_verdict, note

GAINS = {"batch": 1.1, "parallel": 1.0, "async": 4.0, "embed": 2.0, "prefetch": 0.8}


def test_gains_losses_and_what_is_neither() -> None:
    said = made_up(GAINS).verdict_sentence()
    assert said.startswith("Of the fixes, each left out of the full set: async (and embed, prefetch) gives 6.4")
    first, *rest = said.removesuffix(".").split("; ")
    assert [part.split(" gives ")[0] for part in first.split(", async")[-1].split("), ")][1:] == [
        "embed (and prefetch)", "batch (and parallel)",
    ]  # fmt: skip
    assert rest == [rest[0], "indistinguishable from no effect here: parallel"]
    assert rest[0].startswith("slower with: prefetch 0.80")
    assert "(95% " in rest[0]


def test_only_the_largest_are_given_with_their_numbers() -> None:
    said = made_up(dict.fromkeys(GAINS, 2.0)).verdict_sentence()
    assert said.count(" gives ") == 3
    assert "; less, but more than none: parallel, prefetch." in said


def test_no_effect_at_all_is_said() -> None:
    said = made_up({}).verdict_sentence()
    assert said == "Of the fixes, each left out of the full set: none can be told from no effect here."


def test_one_round_tells_nothing_and_an_interruption_is_said() -> None:
    said = made_up(GAINS, rounds=1, interrupted=True).verdict_sentence()
    assert said == (
        "Of the fixes, each left out of the full set (interrupted after 1 round): no fix can be told from no effect: "
        "one pair: no interval."
    )


def test_what_is_not_known_is_named_with_its_reason() -> None:
    found = made_up(GAINS)
    unknown = Ratio("tokens_per_s", None, None, None, 0, different=False, reason=note("not comparable: corpus"))
    rows = [replace(row, gain=unknown) if (row.kind, row.fix) == ("without", "batch") else row for row in found.rows]
    assert (
        "; not known of batch (and parallel): not comparable: corpus."
        in replace(found, rows=tuple(rows)).verdict_sentence()
    )
    assert replace(found, rows=()).verdict_sentence() == ""


def test_it_follows_the_sentence_about_the_sides() -> None:
    found, programs = made_up(GAINS), speeds(plan_ladder(fix_list()), GAINS)
    said = compare_verdict(compare([programs["as-found"], programs["fixed"]], extensions={"ladder": found}))
    assert said.startswith("fixed runs 7.0")
    assert said.endswith(f". {found.verdict_sentence()}")
