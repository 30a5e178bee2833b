"""The parts of a check as one state and a sentence."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

import profiler
from profiler.analyse.model.analysis import Analysis
from profiler.analyse.model.comparison import Comparison, Side
from profiler.analyse.model.finding import Confidence, Finding, RuleText
from profiler.analyse.model.measures import Measure
from profiler.check.causes import counted_causes, worse_causes
from profiler.check.counters.compare import budget_warnings, compare, overall
from profiler.check.counters.environment_key import key_differences, other_work
from profiler.check.model import (
    FAIL,
    NOT_COMPARABLE,
    PASS,
    Budget,
    Change,
    CounterLine,
    GateResult,
    Limits,
    Notice,
)
from profiler.check.modes.finish import conclude
from profiler.check.outputs import text
from profiler.check.outputs.first_screen import first_screen, why
from profiler.check.outputs.format import counter_name
from profiler.check.outputs.json import result_json
from profiler.check.outputs.machine import find_alerts
from profiler.check.outputs.text import sentence
from profiler.check.outputs.write import render_markdown
from profiler.check.speed.verdict import throughput
from profiler.core.metrics import COUNTERS
from profiler.diagnose.rules.device import made_on_host
from profiler.report.notices import NOTICES
from profiler.run.model import RunInfo, Site
from tests.check.synthetic_rounds import exact
from tests.fakes.counting import at, lines_of, one, two
from tests.report import samples


def result(before: float, after: float, **options: str) -> GateResult:
    lines = compare(two(syncs=before), two(syncs=after), Limits())
    return conclude(GateResult(counters=lines, counters_state=overall(lines), **options))  # type: ignore[arg-type]


def test_it_is_as_bad_as_its_worst_part_and_says_what_is() -> None:
    assert (result(20, 20).state, result(20, 20).sentence) == (PASS, "No counter rose")
    assert (result(20, 40).state, result(20, 40).sentence) == (FAIL, "Syncs rose from 1 to 2 per step")
    grown = compare(two(growth_bytes=0.0), two(growth_bytes=80.0), Limits())
    leak = conclude(GateResult(counters=grown, counters_state=overall(grown)))
    assert leak.sentence == "Growth of memory in use rose from 0 B to 4.00 B per step"
    many = dict.fromkeys(("syncs", "h2d", "d2h", "operators"), 20.0)
    risen = compare(two(**dict.fromkeys(many, 0.0)), two(**many), Limits())
    assert conclude(GateResult(counters=risen, counters_state=overall(risen))).sentence.endswith(
        "per step (3 more counters too)"
    )
    differs = key_differences({"device": "cpu"}, {"device": "cuda"}, "key-differs", "baseline")
    unknown = conclude(GateResult(counters_state=NOT_COMPARABLE, counters_reasons=differs))
    assert unknown.state == NOT_COMPARABLE
    assert unknown.sentence.startswith("Device: cpu in the baseline against cuda (")
    with pytest.raises(ValueError, match="nothing was compared"):
        conclude(GateResult())


def test_a_check_of_another_environment_is_told_to_count_there() -> None:
    differs = key_differences({"device": "cpu"}, {"device": "cuda"}, "key-differs", "baseline")
    unknown = conclude(
        GateResult(mode="baseline", baseline_file="b.json", counters_state=NOT_COMPARABLE, counters_reasons=differs)
    )
    assert "check --baseline b.json --update REASON -- " in first_screen(unknown, ()).actions[0].command


@pytest.mark.parametrize(
    ("part", "base", "candidate", "words"),
    [
        ("batch_size", "32", "64", "the batch has 64 samples instead of 32"),
        ("parameters", "1000", "1090", "the model has 9.0% more parameters"),
        ("parameters", "1000", "500", "the model has 50% fewer parameters"),
        ("accumulation", "1", "4", "a step takes 4 batches instead of 1"),
        ("autocast", None, "bfloat16", "autocast to bfloat16 is on"),
        ("autocast", "bfloat16", None, "autocast to bfloat16 is off"),
        ("parameter_dtype", "float32", "float16", "the parameters are float16 instead of float32"),
        ("sequence_length", "128", "256", "sequence length is 256 instead of 128"),
    ],
)
def test_other_work_is_told_in_its_units(part: str, base: str | None, candidate: str | None, words: str) -> None:
    sides = ({} if value is None else {part: value} for value in (base, candidate))
    assert [sentence(notice) for notice in other_work(*sides)] == [words]


def test_what_a_pass_did_not_see_is_one_sentence() -> None:
    values = {"missing": ["evaluation", "checkpoint"], "workers": 2, "lines": ["train.py:7"]}
    assert sentence(Notice("not-seen", values)) == (
        "Not seen: an evaluation or a checkpoint, of which these steps have none; the work of 2 loader workers; "
        "1 changed statement that did not run, or only calls others (train.py:7)."
    )


def test_a_gain_is_to_be_written_down_only_where_there_is_a_file() -> None:
    for options, expected in (({"baseline_file": "b.json"}, ["fewer-than-baseline"]), ({"mode": "against"}, ["fewer"])):
        assert [reason.code for reason in result(20, 10, **options).counters[0].reasons] == expected


def test_the_reason_of_an_undecided_speed_follows_the_verdict() -> None:
    speed = throughput(exact(0.0), Limits())
    undecided = conclude(GateResult(throughput=speed))
    assert speed.reason is not None
    assert undecided.sentence == "A change of 0.0% may be noise"
    assert [why.lower() for why in why(undecided)] == [f"{sentence(speed.reason)}.".lower()]
    assert sentence(speed.reason) in render_markdown(undecided)


def test_the_rounds_that_would_settle_it_are_told_by_one_sentence_and_its_command() -> None:
    limits = Limits(max_rounds=6)
    speed = throughput(exact(0.02, 0.06, 0.0, 0.05, 0.01, 0.04), limits)
    undecided = conclude(GateResult(mode="against", limits=limits, throughput=speed))
    assert speed.reason is not None
    more, most = speed.reason.values["more"], speed.reason.values["max_rounds"]
    told = f"{more} more rounds would probably settle it (about 3 min 06 s, --set max_rounds={most})"
    assert sentence(speed.reason).endswith(f"; {told}")
    commands = [
        action.command for action in first_screen(undecided, ()).actions if f"max_rounds={most}" in action.command
    ]
    assert len(commands) == 1
    told_apart = render_markdown(replace(undecided, throughput=replace(speed, reason=None)))
    assert f"{more} more" not in told_apart
    assert "max_rounds=" not in told_apart


def test_each_code_in_the_product_has_a_sentence() -> None:
    folder = Path(profiler.__file__).parent / "check"
    sources = [path.read_text(encoding="utf-8") for path in folder.rglob("*.py")]
    codes = {code for source in sources for code in re.findall(r'Notice\(\s*"([a-z-]+)"', source)}
    assert len(codes) > 30
    assert codes <= text._SENTENCES.keys() | NOTICES.keys(), "those of rounds are also told by compare and try"


PYTHON = Finding(
    RuleText("python-loop", "Python takes time", (), "Use operators."), 0.03, 0.3, 0.27, 0.33, Confidence.HIGH,
    (Site("train.py", 7, "main"),),
)  # fmt: skip


def compared(before: tuple[Finding, ...], after: tuple[Finding, ...], level: str = "standard") -> Comparison:
    step = {"step_time": Measure("step_time", 0.1, "s")}

    def side(label: str, findings: tuple[Finding, ...]) -> Side:
        info = RunInfo(2, label, "", ("train.py",), level=level)
        run = Analysis(info, step, {}, {}, findings=findings)
        return Side(label, "", (run,), None, step, Measure("recording_slowdown", None, "x"))

    return replace(samples.comparison(), sides=(side("base", before), side("candidate", after)))


def test_a_cause_that_appeared_or_grew_is_named_with_its_rule_and_line() -> None:
    [cause] = worse_causes(compared((), (PYTHON,)))
    assert (cause.rule, cause.file, cause.line, cause.before, cause.after) == ("python-loop", "train.py", 7, 0.0, 0.03)
    assert cause.sentence == "Python takes time at train.py:7 (python-loop): new, 30.0 ms of each step."
    grown = replace(PYTHON, seconds=0.06, share=0.6, low=0.55, high=0.65)
    [cause] = worse_causes(compared((PYTHON,), (grown,)))
    assert "costs more, 30.0 ms and then 60.0 ms of each step." in cause.sentence


def test_no_cause_is_named_that_remains_or_that_light_runs_cannot_show() -> None:
    assert not [*worse_causes(compared((PYTHON,), (PYTHON,)))]
    assert not [*worse_causes(compared((PYTHON,), ()))]
    assert not [*worse_causes(compared((), (PYTHON,), level="light"))]


def test_a_counter_that_rose_at_a_line_names_the_rule_for_its_calls() -> None:
    def rose(
        counter: str, after: float, operation: str = "item", *, state: str = FAIL, scope: str = "step"
    ) -> CounterLine:
        change = Change(counter, "train.py", 7, "main", operation, 1.0, after)
        return CounterLine(counter, state, (1.0, 1.0), (after, after), 1.0, changes=(change,), scope=scope)

    for lines, rules in (
        ((rose("syncs", 2.0),), ["hidden-sync"]),
        ((rose("syncs", 200.0),), ["per-element-reads"]),
        ((rose("syncs", 2.0, "torch.cuda.synchronize"),), ["left-over-synchronize"]),
        ((rose("syncs", 2.0, "torch.cuda.empty_cache"),), ["empty-cache"]),
        ((rose("syncs", 2.0, "mask index"),), ["shape-from-values"]),
        ((rose("h2d", 300.0, "to"), rose("h2d_bytes", 9_000.0, "to")), ["tiny-copies"]),
        ((rose("h2d", 300.0, "to"), rose("h2d_bytes", 9e9, "to")), []),
        ((rose("h2d", 2.0, "to"), rose("h2d_bytes", 90.0, "to")), []),
        ((rose("recompilations", 2.0, ""),), ["recompilation"]),
        ((rose("growth_bytes", 4.0, ""), rose("peak_bytes", 9e9, "")), ["memory-creep"]),
        ((rose("growth_bytes", 4.0, ""), rose("syncs", 2.0)), ["hidden-sync"]),
        ((rose("might_sync", 2.0),), []),
        ((rose("launches", 2.0, ""),), []),
        ((rose("syncs", 0.5),), []),
        ((rose("syncs", 2.0, state=PASS),), []),
        ((rose("syncs", 2.0, scope="worker"),), []),
    ):
        causes = tuple(counted_causes(lines))
        assert [cause.rule for cause in causes] == rules, lines
        assert not any("{" in cause.sentence + cause.fix for cause in causes), "templates need values"
        assert all(
            (cause.file, cause.line, cause.before, cause.after) == ("train.py", 7, None, None) for cause in causes
        )
    line = rose("h2d", 2.0, "to")
    source = "mask = torch.zeros(4).to(device)"
    line = replace(line, changes=tuple(replace(change, source=source) for change in line.changes))
    assert [cause.rule for cause in counted_causes((line,))] == [made_on_host.name]
    [cause] = counted_causes((rose("syncs", 2.0),))
    assert cause.sentence == (
        "The host waits for the device in the middle of each step at train.py:7 (hidden-sync): syncs per step "
        "rose from 1 to 2 there."
    )


def above_budget(budget: Budget) -> GateResult:
    """A peak of 3 MB a step, all of it at train.py:9, as in the base."""
    process = one(peak_bytes=20 * 3e6, lines=lines_of(at(9, 20 * 3e6, "h = a @ b", counter="peak_bytes")))
    limits = Limits(budgets={"peak_bytes": budget})
    lines = compare([process], [process], limits)
    result = GateResult(counters=lines, counters_state=overall(lines), limits=limits, mode="baseline")
    result = replace(result, baseline_file="b.json", options="--count")
    return conclude(replace(result, warnings=budget_warnings(lines)))


def test_an_exceeded_budget_is_in_every_output() -> None:
    expected = "peak of memory in use: 3.00 MB per step, above its budget of 2.00 MB"
    failed = above_budget(Budget(fail=2e6))
    assert failed.sentence == f"P{expected[1:]}, most at train.py:9"
    (alert,) = find_alerts(failed)
    assert (alert.rule, alert.level, alert.at.file, alert.at.line) == ("budget/peak_bytes", "error", "train.py", 9)
    assert alert.message == f"P{expected[1:]}; 3.00 MB of it at this line."
    (line,) = result_json(failed)["counters"]["lines"]
    assert (line["exceeded_budget"], line["largest"][0]["line"]) == (2e6, 9)
    assert result_json(failed)["limits"]["budgets"] == [{"counter": "peak_bytes", "warn": None, "fail": 2e6}]
    assert expected[1:] in render_markdown(failed)
    screen = first_screen(failed, ())
    assert expected in screen.headline.text
    assert [place.path for place in screen.places] == ["train.py:9"]
    assert "check --baseline b.json --count -- " in f"{screen.actions[-1].command} "
    warned = above_budget(Budget(warn=2e6))
    assert (warned.state, text.warnings(warned)) == (PASS, (f"P{expected[1:]}.",))
    assert [each.level for each in find_alerts(warned)] == ["warning"]


def test_what_is_counted_outside_of_steps_is_not_told_per_step() -> None:
    for name, period in (("evaluation_operators", "per evaluation"), ("startup_operators", "until the first step")):
        limits = Limits(budgets={name: Budget(fail=5.0)})
        lines = compare(two(**{name: 200.0}), two(**{name: 400.0}), limits)
        result = conclude(GateResult(counters=lines, counters_state=overall(lines), limits=limits))
        assert period in result.sentence, result.sentence
        assert "per step" not in result.sentence
        change = Change(name, "train.py", 7, "main", "", 10.0, 20.0)
        placed = tuple(replace(line, changes=(change,), largest=(change,)) for line in lines if line.counter == name)
        told = replace(result, counters=placed)
        alerts = find_alerts(told)
        assert [alert.rule.partition("/")[0] for alert in alerts] == ["counter", "budget"]
        for shown in (*(alert.title for alert in alerts), render_markdown(told)):
            assert f"Operators {period}" in shown
            assert not re.search("of an evaluation|of the start|in a training step", shown)
    names = [counter_name(replace(placed[0], counter=counter.name)) for counter in COUNTERS]
    assert len(names) == len(set(names)), "rows of a table, and tests of JUnit"
    assert "per step" not in sentence(Notice("varies", {"low": 1.0, "high": 2.0}))
