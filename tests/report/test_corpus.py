"""The first screen of every recorded run, comparison and visible trace: complete, and contradicted by nothing below it;
and the weight of its page.

Every number of the first screen is looked up in the JSON report, from which the tables below it are made.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from profiler import compare, read
from profiler.analyse.model.analysis import Analysis
from profiler.analyse.model.host import Stage
from profiler.core.units import rate, ratio, seconds, share, significant
from profiler.diagnose.model import RunVerdict
from profiler.report.blocks import FirstScreen, Items, PhaseStrip, Report
from profiler.report.build import build_report
from profiler.report.category_text import CATEGORIES
from profiler.report.finding_text import EVALUATION, MOST_FACTOR, NO_GAIN, lead_finding
from profiler.report.first_screen_text import is_of_input
from profiler.report.model import has_no_steps
from profiler.report.write import rendered
from profiler.run.model import Site
from tests.approval.cases import COMPARED, RUNS, recording
from tests.fakes.programs import ROOT
from tests.report.names import assert_names
from tests.run.ingest.test_real_traces import FILES

_PERCENT: Final = re.compile(r"(?<![\d.,])(<?\d+(?:\.\d+)?)%")
_TIME: Final = re.compile(r"(?<![\w.,→×])(\d[\d,.]*) (ns|µs|ms|s)\b(?! CPU)")
_GAIN: Final = re.compile(r"(?<![\w.,])(\d[\d,.]*)×")
_UNKNOWN: Final = re.compile(r"What ran in (\d+(?:\.\d+)?)% of (?:each|every) step is unknown")
_ROUNDING: Final = 0.01
_MOST_OF_A_RUN: Final = 150_000
_MOST_OF_A_COMPARISON: Final = 350_000
"""Bytes of a page."""
_QUICK: Final = 4
"""Every fourth recording is quick: the approval tests read all of them."""
_SMALL_TRACE: Final = 200_000
"""Bytes: read within half a second."""
_PLAIN: Final = frozenset(
    {"data loading", "copy", "launch", "framework", "compute", "log", "checkpoint", "unknown"}
) | {"compile", "import", "start", "train", "end", "evaluation", "sync", "throttled"}
"""Names of categories and stages that are words of the field, or of everyday English."""


def _corpus() -> list[Any]:
    runs = [
        pytest.param(path, id=path.stem, marks=pytest.mark.slow if index % _QUICK else ())
        for index, path in enumerate(sorted(RUNS.glob("*.zip")))
    ]
    return runs + [
        pytest.param(
            file,
            id=file.name.removesuffix(".json.gz"),
            marks=[] if file.stat().st_size < _SMALL_TRACE else [pytest.mark.slow],
        )
        for file in FILES
    ]


@pytest.mark.parametrize("path", _corpus())
def test_the_first_screen_is_complete_and_agrees_with_the_report(path: Path) -> None:
    analysis = read(path, timeline=True)
    report = build_report(analysis)
    assert_names(report)
    first = report.first
    assert first is not None
    assert len(rendered(analysis, "html").encode()) <= _MOST_OF_A_RUN, "bytes of the page"
    _check_complete(first, analysis)
    _check_headline(first, analysis)
    document = json.loads(rendered(analysis, "json"))
    numbers = _Numbers(analysis, document)
    for text in _texts(first):
        assert not (unknown := list(numbers.unknown(text))), f"{unknown} of {text!r} stand nowhere in the report"
    _check_strip(first, analysis, document)
    _check_places(first, numbers)
    _check_unknown(analysis, report)
    assert not (words := _undefined(" ".join(_texts(first)))), f"not in docs/glossary.md: {words}"


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in {"case", "trainer-ssm"} else pytest.mark.slow) for name in COMPARED],
)
def test_the_first_screen_of_a_comparison_agrees_with_its_report(name: str) -> None:
    """The factor and both rates of the headline are those of the report; the shares of its lines, and what it says of
    the device, are those of the sides."""
    comparison = compare({label: [recording(label)] for label in COMPARED[name]}, anyway=True)
    report = build_report(comparison)
    assert_names(report)
    first = report.first
    assert first is not None
    assert len(rendered(comparison, "html").encode()) <= _MOST_OF_A_COMPARISON, "bytes of the page"
    assert first.why
    assert first.actions
    assert first.places or first.places_note
    document = json.loads(rendered(comparison, "json"))
    before, after = (
        {name: measure["value"] for name, measure in side["measures"].items()}
        for side in (document["sides"][0], document["sides"][-1])
    )
    unit = next(unit for unit in ("tokens_per_s", "points_per_s", "steps_per_s") if before.get(unit))
    rates = before[unit], after[unit]
    shown = [rate(value, "").strip() for value in rates]
    assert " → ".join(shown) in first.headline.text
    (factor,) = _GAIN.findall(first.headline.text)
    assert float(factor) == pytest.approx(max(rates) / min(rates), rel=0.05)
    assert ("slower" in first.headline.text) == (rates[1] < rates[0])
    shares = {f"{share(abs(value))}" for value in _floats(document)}
    shares |= {share(1 - value) for value in _floats(document) if 0 <= value <= 1}
    for sentence in first.why:
        assert {f"{each}%" for each in _PERCENT.findall(sentence)} <= shares, sentence
    sums = [each for side in comparison.sides for each in _sums(side.detail or side.runs[0])]
    known = [place.share for place in first.places if place.share is not None]
    assert all(any(value == pytest.approx(each, abs=1e-6) for each in sums) for value in known)


def _check_complete(first: FirstScreen, analysis: Analysis) -> None:
    """A cause, a line or why there is none, what is to gain, and a next step."""
    assert first.headline.text.strip()
    assert first.places or first.places_note
    lead = lead_finding(analysis)
    if lead is not None and lead.gain >= NO_GAIN:
        assert "× as fast" in first.headline.highlight
    else:
        assert not first.headline.highlight
        has_gain = any(
            "× as fast without it" in sentence or "No gain is predicted" in sentence for sentence in first.why
        )
        assert has_gain or not analysis.outcome or has_no_steps(analysis), "neither a gain nor why there is none"
    has_nothing = not (analysis.value("step_time") or analysis.threads)
    assert first.actions or has_nothing
    assert all(action.details() or action.code or action.command or action.note for action in first.actions)


def _check_headline(first: FirstScreen, analysis: Analysis) -> None:
    """The share in the headline is that of the part of a step which it names."""
    named = _PERCENT.search(first.headline.text)
    step, lead = analysis.value("step_time"), lead_finding(analysis)
    if named is None or not step:
        return
    if lead is not None and lead.rule.name == EVALUATION:
        phase = next((phase.share for phase in analysis.phases if phase.name == Stage.EVALUATION), None)
        assert phase is None or named[0] == share(phase), f"{first.headline.text}: {phase}"
    part = None
    segments = first.picture.segments if isinstance(first.picture, PhaseStrip) else ()
    waits = [each.value for each in segments if each.label == CATEGORIES["input"].label]
    if lead is not None and is_of_input(lead) and waits:
        part = sum(waits) / step
    elif lead is None and analysis.outcome == RunVerdict.UNKNOWN_STEP:
        part = (analysis.breakdown["unattributed"].value or 0.0) / step
    elif lead is None and analysis.outcome == RunVerdict.DEVICE_IDLE:
        part = (analysis.device_breakdown["idle"].value or 0.0) / sum(
            measure.value or 0.0 for measure in analysis.device_breakdown.values()
        )
    assert part is None or named[0] == share(part), f"{first.headline.text}: {part}"


def _texts(first: FirstScreen) -> Iterator[str]:
    yield first.headline.text
    yield from first.why
    for chip in first.chips:
        yield chip.text
    for action in first.actions:
        yield action.note
    yield first.places_title
    yield first.places_note


class _Numbers:
    """The numbers of a report, as a text may show them: of its JSON, and sums of rows of the tables."""

    def __init__(self, analysis: Analysis, document: dict[str, Any]) -> None:
        values = [abs(value) for value in _floats(document)]
        step = analysis.value("step_time")
        self.sums = list(_sums(analysis))
        shares = [value / step for value in values if step and value <= 1.05 * step] + values + self.sums
        shares += [1.0 - value for value in (analysis.value("device_utilization"),) if value is not None]
        shares += _parts_of_run(document)
        self.evidence = {text for finding in document["findings"] for text in finding["evidence"]}
        self.shares = {text for value in shares for text in _forms_of_share(value)}
        self.times = {seconds(value) for value in values} | {seconds(value * step) for value in shares if step}
        self.times |= {seconds((end - analysis.info.begin) / 1e9) for end in (analysis.info.end,) if end}
        self.gains = {significant(value, digits) for value in values for digits in (2, 3)}
        self.gains |= {form.rstrip("×") for value in values for form in (ratio(value), f"{value:,.0f}")}

    def unknown(self, text: str) -> Iterator[str]:
        """The numbers of a text that are in no part of the report."""
        if text in self.evidence:  # the page and JSON have the same sentence
            return
        yield from (f"{each}%" for each in _PERCENT.findall(text) if each not in self.shares)
        yield from (f"{number} {unit}" for number, unit in _TIME.findall(text) if f"{number} {unit}" not in self.times)
        yield from (f"{each}×" for each in _GAIN.findall(text) if each not in self.gains and each != str(MOST_FACTOR))


def _sums(analysis: Analysis) -> Iterator[float]:
    """Shares of rows of the report's tables, summed by line and by function; of causes, the parts at a line."""
    rows: list[tuple[Any, Site | None, float]] = [("idle", row.site, row.share_of_wall) for row in analysis.idle]
    rows += [("lines", line.site, line.share) for line in analysis.lines]
    rows += [
        ("own", line.site, min(1.0, line.active / analysis.own_time)) for line in analysis.lines if analysis.own_time
    ]
    rows += [(thread.tid, line.site, line.share) for thread in analysis.threads for line in thread.lines]
    sums: defaultdict[Any, float] = defaultdict(float)
    for table, site, part in rows:
        yield part
        if site is not None:
            sums[table, site.file, site.line] += part
            sums[table, site.file, site.function, ""] += part
    yield from sums.values()
    yield from (thread.share_at_site for thread in analysis.threads)
    for finding in analysis.findings:
        yield finding.share
        yield from (place.share for place in finding.places)
        yield from (row.share_of_wall for row in finding.values.get("rows", ()))
    if analysis.driver is not None:
        yield from (analysis.driver.share, *(share for _, share in analysis.driver.functions))


def _parts_of_run(document: dict[str, Any]) -> Iterator[float]:
    """The shares of the program's own time that each import, each line and the measured steps have, by the cells."""
    sums: defaultdict[Any, float] = defaultdict(float)
    own = 0.0
    for cell in document["ledger"]["cells"]:
        if cell["thread"] == "main" and cell["owner"] not in ("recorder", "other programs"):
            own += cell["seconds"]
            sums[cell["period"]] += cell["seconds"]
            place = cell["place"] or {"file": "", "line": 0}
            sums[cell["owner"], cell["package"], place["file"], place["line"]] += cell["seconds"]
    yield from (part / own for part in sums.values())


def _forms_of_share(value: float) -> set[str]:
    """`39` and `39.2`, as a headline, a sentence and an interval show 0.392."""
    return {share(value).rstrip("%"), f"{100 * value:.0f}", f"{100 * value:.1f}"} if value <= 1.05 else set()


def _floats(value: Any) -> Iterator[float]:
    if isinstance(value, dict):
        for item in value.values():
            yield from _floats(item)
    elif isinstance(value, list):
        for item in value:
            yield from _floats(item)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield float(value)


def _check_strip(first: FirstScreen, analysis: Analysis, document: dict[str, Any]) -> None:
    """The parts of the strip are rows of the phases, of the breakdown, or of the device's time, and sum to a step."""
    if not isinstance(first.picture, PhaseStrip):
        return
    known = {seconds(value) for value in _floats(document)}
    for segment in (segment for strip in first.picture.strips() for segment in strip.segments):
        assert segment.text in known, f"{segment.label} {segment.text} is in no table"
    step = analysis.value("step_time")
    assert sum(segment.value for segment in first.picture.segments) == pytest.approx(step, rel=0.02)


def _check_places(first: FirstScreen, numbers: _Numbers) -> None:
    shares = [place.share for place in first.places if place.share is not None]
    for value in shares:
        assert any(value == pytest.approx(each, abs=1e-6) for each in numbers.sums), f"{value} is in no table"
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) <= 1.01 or "idle" not in first.places_title


def _check_unknown(analysis: Analysis, report: Report) -> None:
    """No more of a step is said to be unknown than what the lines of the tables leave."""
    of_lines = sum(line.share for line in analysis.lines)
    told = [report.first.headline.text, *report.first.why] if report.first else []
    told += [
        item for each in report.sections for block in each.blocks if isinstance(block, Items) for item in block.items
    ]
    for text in told:
        for unknown in _UNKNOWN.findall(text):
            assert float(unknown) / 100 <= 1 - of_lines + _ROUNDING, f"{text}: lines have {of_lines:.0%}"


# ---------------------------------------------------------------- words


def _undefined(text: str) -> set[str]:
    """The project's own terms in a text that the glossary does not define: names of categories and stages that are no
    usual words, identifiers, and names of rules."""
    glossary = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8").lower()
    terms = {name.lower() for name in (*(text.label for text in CATEGORIES.values()), *Stage)} - _PLAIN
    used = {term for term in terms if re.search(rf"\b{re.escape(term)}\b", text.lower())}
    used |= set(re.findall(r"(?<![\w./(])[a-z]+_[a-z_]+(?![\w.(/=])", text))
    return {term for term in used if term not in glossary}
