"""The inputs of the approval tests and the output for each: a JSON document and the texts that people read.

`runs/` holds small recordings, most of them of the programs in tests/clinic/cases/styles, some of the bundled
trainer, made by the code of before the rebuild of November 2026; `made-up-*.zip` were written from runs of
tests.recorded.builders.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from unittest.mock import patch

from rich.console import Console

import profiler
from profiler import __version__
from profiler.__main__ import main
from profiler.check.model import GateResult, Limits
from profiler.check.modes.finish import conclude
from profiler.check.outputs import json as check_json
from profiler.check.outputs import machine
from profiler.check.outputs.format import RepositoryPaths
from profiler.check.outputs.history import history_report, print_history
from profiler.check.outputs.machine import render_junit, workflow_commands
from profiler.check.outputs.page import gate_report
from profiler.check.outputs.write import print_result, render_markdown
from profiler.check.speed.verdict import throughput
from profiler.diagnose.comparison import diagnose_comparison
from profiler.report.build import build_report
from profiler.report.comparison_text import with_comparison_verdict
from profiler.report.model import Results
from profiler.report.render import markdown as report_markdown
from profiler.report.render.console import print_report
from profiler.report.write import rendered
from tests.benchmarks.gate_live import read_round
from tests.check.outputs import results
from tests.report import hook_samples, ladders, samples, variants, wording

ROOT: Final = Path(__file__).parents[2]
RUNS: Final = Path(__file__).parent / "runs"
GATES: Final = ROOT / "reports" / "2026-11-21-gate" / "gates.jsonl.gz"
"""Rounds of live gates, with the state that each ended in."""
COMPARED: Final = {
    "case": ("01-as-found", "01-fixed", "02-as-found"),
    "case-detail": ("detail-as-found", "detail-fixed"),
    "trainer-lm": ("lm-as-found-light", "lm-fixed-light"),
    "trainer-ssm": ("ssm-as-found", "ssm-fixed"),
    "input": ("spikes", "slow-input"),
    "crashed": ("crashed", "plain-light"),
    "torchrun": ("ranks", "forking"),
}
CHECKED: Final = {
    "same-program": ("plain-light", "plain-standard"),
    "more-syncs": ("spikes", "syncing"),
    "case": ("01-fixed", "01-as-found"),
}
MADE_UP: Final[dict[str, Callable[[], Results]]] = {
    "comparison": samples.comparison,
    "three-sides": samples.three_sides,
    "empty": samples.empty_comparison,
    "run-of-hooks": hook_samples.run,
    "comparison-of-hooks": hook_samples.comparison,
}
_CHANGING: Final = ("created_at", "directory", "out", "machine", "profiler_version")
"""Keys of JSON documents that depend on when and where a report is made."""
_ELSEWHERE: Final = ("cells",)
"""Keys that tests of their own cover: some hundred rows in each run."""
_NOW: Final = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00")

_DURATION: Final = re.compile(r"(\btook\W+)[\d.]+ m?s")


@dataclass(frozen=True)
class Output:
    """The output of the program for one input."""

    document: Any
    """The JSON document."""
    texts: dict[str, str]
    """Format -> text: Markdown, terminal."""


def cases() -> dict[str, Callable[[], Output]]:
    """Name of each case -> function that computes its output."""
    found: dict[str, Callable[[], Output]] = {}

    def add(name: str, make: Callable[..., Output], *args: Any) -> None:
        found[name] = lambda: make(*args)

    for path in sorted(RUNS.glob("*.zip")):
        add(f"run-{path.stem}", report, path)
    for name, labels in COMPARED.items():
        add(f"compare-{name}", compare, labels)
    for name, labels in CHECKED.items():
        add(f"check-runs-{name}", check_runs, labels)
    for name in results.everything():
        add(f"check-made-up-{name.replace(' ', '-')}", made_up_result, name)
    add("check-made-up-history", made_up_history)
    for name in ladders.EVERYTHING:
        add(f"ladder-{name}", made_up_ladder, name)
    for name in MADE_UP:
        add(f"made-up-{name}", made_up_report, name)
    for name in variants.VARIANTS:
        add(f"variant-{name.replace(', ', '-').replace(' ', '-')}", variant, name)
    add("wording", lambda: Output(dict(wording.sentences()), {}))
    for index in range(len(_selected_gates())):
        add(f"check-recorded-{index:02}", recorded_gate, index)
    return found


def recording(name: str) -> Path:
    return RUNS / f"{name}.zip"


def report(path: Path) -> Output:
    """Output of `report` in all formats but HTML, for a run that is loaded and analysed once: that takes most of the
    time."""
    run = profiler.load(path)
    analysis = profiler.analyse_run(run)
    with _folder(), patch("profiler.load", return_value=run), patch("profiler.analyse_run", return_value=analysis):
        texts = {}
        for kind in ("json", "md"):
            _run("report", str(path), "--format", kind, "--out", f"report.{kind}")
            texts[kind] = Path(f"report.{kind}").read_text()
        terminal = _run("report", str(path), "--format", "text")
    return Output(json.loads(texts["json"]), {"Markdown": texts["md"], "terminal": terminal})


def compare(labels: tuple[str, ...]) -> Output:
    """Output of `compare` for recorded runs."""
    with _folder():
        terminal = _run("compare", *(str(recording(label)) for label in labels), "--anyway", "--out", "out")
        document, text = (Path(f"out/compare.{kind}").read_text() for kind in ("json", "md"))
    return Output(json.loads(document), {"Markdown": text, "terminal": terminal})


def check_runs(labels: tuple[str, ...]) -> Output:
    """Output of `check RUN_A RUN_B`; the exit code is part of the document."""
    with _folder():
        for label in labels:
            shutil.unpack_archive(recording(label), label)
        folders = [str(next(Path(label).rglob("run.json")).parent) for label in labels]
        terminal = _run("check", *folders, "--out", "out", expected=(0, 1, 3))
        document, text = (Path(f"out/check.{kind}").read_text() for kind in ("json", "md"))
    texts = {"Markdown": text, "terminal": terminal}
    return Output(
        json.loads(document) | {"seconds": "<changes>"},
        {name: _DURATION.sub(r"\1<time>", text) for name, text in texts.items()},
    )


def made_up_result(name: str) -> Output:
    """All outputs of `check` but HTML, for a made-up result."""
    result, repository = results.everything()[name], RepositoryPaths("/repo", "/repo/examples")
    output = _check_output(result)
    output.texts.update(
        {
            "page": report_markdown.render(gate_report(result)),
            "JUnit": render_junit({"": result}),
            "annotations": "\n".join(workflow_commands(result, repository)),
            "SARIF": machine.render_sarif({"": result}, repository).replace(__version__, "<version>"),
        }
    )
    return output


def made_up_history() -> Output:
    """The history of checks as Markdown, and in a terminal without Unicode."""
    shown = results.history()
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii", write_through=True)
    with _folder():
        print_history(shown, stream=stream)
    terminal = stream.buffer.getvalue().decode("ascii")  # type: ignore[attr-defined]
    return Output({}, {"Markdown": report_markdown.render(history_report(shown)), "terminal": terminal})


def made_up_ladder(name: str) -> Output:
    """The sections that the bundled trainers add to `compare --ladder`, for made-up rows."""
    subject = ladders.EVERYTHING[name]()
    subject = with_comparison_verdict(subject, diagnose_comparison(subject))
    document, added = json.loads(rendered(subject, "json")), ("ladder", "learning")
    report = build_report(subject)
    report = replace(report, sections=tuple(section for section in report.sections if section.key in added))
    return Output({key: document[key] for key in ("verdict", "ladder")}, {"Markdown": report_markdown.render(report)})


def made_up_report(name: str) -> Output:
    """All sections of a made-up run or comparison, and its JSON."""
    subject = MADE_UP[name]()
    return Output(json.loads(rendered(subject, "json")), {"Markdown": report_markdown.render(build_report(subject))})


def variant(name: str) -> Output:
    """Some sections of made-up results."""
    make, keys = variants.VARIANTS[name]
    results = make()
    report = build_report(results)
    chosen = [section for section in report.sections if section.key in (keys or [section.key])]
    report, terminal = replace(report, sections=tuple(chosen)), io.StringIO()
    with _folder():
        print_report(report, console=Console(file=terminal, color_system=None))
    texts = {"Markdown": report_markdown.render(report), "terminal": terminal.getvalue()}
    return Output({}, texts)


def recorded_gate(index: int) -> Output:
    """Today's verdict on the rounds of a gate that was recorded live."""
    gate = _selected_gates()[index]
    rounds = tuple(map(read_round, gate["rounds"]))
    speed = throughput(rounds, Limits())
    output = _check_output(conclude(replace(results.passed(), throughput=speed, notes=())))
    live = {"experiment": gate["experiment"], "state": gate["state"]}
    if output.document["throughput"]:
        output.document["throughput"]["rounds"] = len(output.document["throughput"].get("rounds", ()))
    return Output({"live": live, "result": output.document}, output.texts)


def _check_output(result: GateResult) -> Output:
    document = json.loads(check_json.render(check_json.result_json(result)))
    with _folder():
        stream = io.StringIO()
        print_result(result, stream=stream)
    return Output(document, {"Markdown": render_markdown(result), "terminal": stream.getvalue()})


@cache
def _selected_gates() -> tuple[dict[str, Any], ...]:
    """The first three recorded gates of each experiment and final state."""
    counts: dict[tuple[str, str], int] = {}
    selected = []
    with gzip.open(GATES, "rt") as lines:
        for line in lines:
            gate = json.loads(line)
            key = gate["experiment"], gate["state"]
            counts[key] = counts.get(key, 0) + 1
            if counts[key] <= 3:
                selected.append(gate)
    return tuple(selected)


def _run(*words: str, expected: tuple[int, ...] = (0,)) -> str:
    """The text that a command prints on a terminal of 80 columns.

    :raises AssertionError: it ends with another exit code.
    """
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(list(words))
    assert code in expected, f"{' '.join(words)}: exit code {code}\n{err.getvalue()}"
    return f"{out.getvalue()}exit code {code}\n" if len(expected) > 1 else out.getvalue()


@contextlib.contextmanager
def _folder() -> Iterator[None]:
    """A new working directory, and a terminal of 80 columns."""
    kept = {name: os.environ.get(name) for name in ("COLUMNS", "NO_COLOR")}
    os.environ.update(COLUMNS="80", NO_COLOR="1")
    try:
        with TemporaryDirectory() as folder, contextlib.chdir(folder):
            yield
    finally:
        for name, value in kept.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})


# ---------------------------------------------------------------- numbers apart from words


def numbers(document: Any) -> Any:
    """The document with every sentence replaced by a placeholder."""
    return _split(document, (), [])


def words(output: Output) -> str:
    """All sentences of the document with their location, then the texts."""
    sentences: list[str] = []
    _split(output.document, (), sentences)
    parts = ["== sentences of the JSON document", *sentences]
    for name, text in output.texts.items():
        parts += [f"== {name}", *(line.rstrip() for line in text.splitlines())]
    return _NOW.sub("<time>", "\n".join(parts)).replace(str(ROOT), "<root>") + "\n"


def _split(value: Any, path: tuple[str, ...], sentences: list[str]) -> Any:
    if isinstance(value, dict):
        return {
            key: "<changes>" if key in _CHANGING and value[key] else _split(value[key], (*path, key), sentences)
            for key in value
            if key not in _ELSEWHERE
        }
    if isinstance(value, list):
        return [_split(item, (*path, str(index)), sentences) for index, item in enumerate(value)]
    if isinstance(value, str) and (" " in value or "not_measured" in path):
        sentences.append(f"{'.'.join(path)}: {value!r}")
        return "<words>"
    return value
