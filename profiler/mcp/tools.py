"""Defines the tools of an agent: functions that return dictionaries, each with `next_step`.

They read runs and results that are there. Only with `allow_runs` do some of them start a program.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path, PurePath
from typing import Annotated, Any, Final

from pydantic import BeforeValidator

import profiler
from profiler import analyse_run, load
from profiler.analyse.model.analysis import Analysis
from profiler.analyse.model.ledger import Owner, Period
from profiler.core.errors import Exit, ProfilerError
from profiler.core.facts import with_python
from profiler.core.files import parse, read_json
from profiler.diagnose.model import WORTH_LEADING
from profiler.mcp.answers import Answer, call, line_step, lines_of, place, read_step, run_step
from profiler.report import blocks
from profiler.report.action_text import command_text
from profiler.report.model import exit_status, has_no_steps
from profiler.run.model import Run, Site
from profiler.run.store import default_directory
from profiler.run.tables import MANIFEST

Text = Annotated[str, BeforeValidator(lambda value: "" if value is None else str(value))]
"""A text; what else an agent gives is answered as a wrong text, in one line."""
_MOST: Final = 20
"""Items of a list that are prepared; the answer may hold fewer."""
_WHY_S: Final = 600.0
"""Seconds after which a program that takes no step is stopped, and one whose steps come late."""
_CHECK_S: Final = 3600.0
_ROOT: Final = Path(profiler.__file__).parents[1]
_MAIN: Final = "import sys; sys.path.insert(0, sys.argv.pop(1)); from profiler.__main__ import main; sys.exit(main())"
"""Starts this copy of the profiler, wherever it lies."""
_RATIO: Final = ("value", "low", "high", "bound", "n", "different")
_CAUSE: Final = ("rule", "file", "line", "sentence", "fix")


class Tools:
    """The tools of one server."""

    STARTING: Final = ("why", "lint", "check")
    """Those that start a program, where that is allowed."""

    def __init__(self, allow_runs: bool, folder: Path) -> None:
        """:param folder: of the runs that are recorded."""
        self.allow_runs = allow_runs
        self._folder = folder

    def all(self) -> tuple[Callable[..., Answer], ...]:
        """Return the tools, the first one to ask first."""
        return self.why, self.lines, self.ledger, self.what_if, self.lint, self.check

    # ---------------------------------------------------------------- of a run

    def why(self, run: Text = "", command: Text = "") -> Answer:
        """Say why a training run is slow: what limits it, at which lines, what cures it, and what a cure gains.

        Give `run`, the directory (or .zip) of a recorded run or a trace of torch.profiler. With --allow-runs, `command`
        (as in "python train.py") is started, recorded for up to a minute from its first step on, and stopped; without
        a step after ten minutes.
        """
        from profiler.report.build import build_report
        from profiler.report.finding_text import finding_row

        path = self._recorded(command) if command else _given(run)
        loaded = load(path)
        if loaded.info.is_counted:
            return _counts(loaded, path)
        analysis = analyse_run(loaded)
        screen = build_report(analysis).first
        assert screen is not None, "a run has a first screen"
        findings = []
        for finding in analysis.findings[:_MOST]:
            row = {name: value for name, value in finding_row(finding).items() if value not in (None, "")}
            findings.append(row | {"lines": [place(site) for site in lines_of(finding)]})
        return {
            "run": str(path),
            "headline": screen.headline.text,
            "why": list(screen.why),
            "ended": exit_status(analysis.info),
            "doubts": [chip.detail or chip.text for chip in screen.chips if chip.tone == "warning"],
            "findings": [_rounded(row) for row in findings],
            "next_step": run_step(analysis, path),
        }

    def lines(self, run: Text = "") -> Answer:
        """List the lines of the program that take most time in a recorded run, with the finding that names each."""
        path, analysis = _analysed(run)
        own = [line for line in analysis.lines if not _is_import(line.site.source)][:_MOST]
        named = {site.place: each.rule.name for each in reversed(analysis.findings) for site in lines_of(each)}
        rows = [
            {
                "line": place(each.site),
                "source": each.site.source,
                "share": each.share,
                "low": each.low,
                "high": each.high,
                "seconds_per_step": each.seconds_per_step,
                "calls": each.calls,
                "finding": named.get(each.site.place, ""),
            }
            for each in own
        ]
        step = line_step(analysis, own[0].site) or call("ledger", path, line=place(own[0].site)) if own else ""
        of = "the run" if has_no_steps(analysis) else "a step"
        return {"of": of, "lines": [_rounded(row) for row in rows], "next_step": step or run_step(analysis, path)}

    def ledger(self, run: Text = "", line: Text = "") -> Answer:
        """List what the time of a recorded run was spent on, or that of one line (`line` is FILE:LINE): how long, what,
        when, and which finding has it, or why none has."""
        from profiler.report.ledger_page import ledger_report

        path, analysis = _analysed(run)
        (section,) = ledger_report(analysis, line).sections
        rows, texts = [], []
        for block in section.blocks:
            if isinstance(block, blocks.Text):
                texts.append(block.text)
            elif isinstance(block, blocks.Table):
                texts.append(f"{block.caption}. {block.note}")
                for row in block.rows[:_MOST]:
                    cells = {column.title: _cell(cell) for column, cell in zip(block.columns, row, strict=True)}
                    rows.append({"of": block.caption, **{name: text for name, text in cells.items() if text}})
        return {"text": texts, "rows": rows, "next_step": _ledger_step(analysis, path, line)}

    def what_if(self, run: Text = "", changes: Text = "") -> Answer:
        """Predict what changes of a step give, as in changes="sync=0,input=0.5" (factors of their time). Without
        `changes`, list the gains that the cures of the findings are predicted to give, and the names of changes."""
        from profiler.analyse.analysis import analyse
        from profiler.diagnose.predict import parse_cures, what_if
        from profiler.report.action_text import what_if_json
        from profiler.report.finding_text import finding_text, gain_text
        from profiler.report.next_step import what_if_next_step

        path = _given(run)
        if cures := parse_cures(changes):
            prediction = what_if(analyse(load(path)), cures)
            answer = dict(what_if_json(cures, prediction, what_if_next_step(cures, prediction, str(path))))
            return answer | ({"next_step": call("lines", path)} if prediction.factor >= WORTH_LEADING else {})
        analysis = _analysed(run)[1]
        gains = [
            {"finding": each.rule.name, "title": finding_text(each).title, "gain": gain_text(each)}
            for each in analysis.findings
            if each.gains
        ]
        names = [name for name, each in analysis.breakdown.items() if each.value]
        names += [each.name for each in analysis.phases]
        return {"gains": gains, "names_of_changes": names[:_MOST], "next_step": run_step(analysis, path)}

    # ---------------------------------------------------------------- of counts, and of changes

    def lint(self, run: Text = "", command: Text = "") -> Answer:
        """Name the lines that make the host wait for the GPU, copy to it or leak memory, by exact counts without a GPU.

        Give `run`, the directory of a run that was counted (`run --virtual-cuda` or `run --count`). With --allow-runs,
        `command` has the words of `lint`, as in "train.py --device cuda".
        """
        if command:
            with tempfile.TemporaryFile("w+") as out:
                self._start(("lint", "--format", "json", *_words(command)), out, (Exit.OK, Exit.FAIL))
                return dict(parse(out.read().encode()))
        from profiler.check.counters.files import root_folder, start_folder
        from profiler.check.modes.sides import load_recordings
        from profiler.lint import judge_counts, lint_document

        path = _given(run)
        recorded = load_recordings((path,))
        loaded = recorded.runs[0]
        if not loaded.info.is_counted:
            raise ProfilerError(f"{path} was not counted: ask why about it, or record it with run --virtual-cuda")
        # the recorded text of lines: a run of somebody else must not name files of this machine to be read
        root = root_folder(start_folder(loaded), loaded.info.argv)
        result = judge_counts(loaded, recorded.counted[0], root, lambda _file, _line: "")
        return lint_document(result, command_text(loaded.info))

    def check(self, result: Text = "", before: Text = "", after: Text = "", command: Text = "") -> Answer:
        """Tell whether a change is really faster or slower, with intervals, or why that is not decided.

        Give `result`, a check.json or compare.json or the folder of one; or `before` and `after`, two recorded runs,
        though one run of each shows no interval. With --allow-runs, `command` has the words of `check`, as in
        "--against main -- python train.py"; it takes minutes.
        """
        from profiler.report.render.json import compare_json

        if command:
            out = default_directory(("check",), self._folder)
            words = ("check", "--out", str(out), *_words(command))
            with tempfile.TemporaryFile("w+") as log:
                self._start(words, log, (Exit.OK, Exit.FAIL, Exit.NOT_COMPARABLE))
            result = str(out)
        if before and after:
            return _compared(compare_json(profiler.compare({"before": [before], "after": [after]})))
        document, path = _result(result)
        answer = _compared(document) if "ratios" in document else _checked(document)
        return answer | {"next_step": document.get("next_step") or f"Make {path} anew: an earlier version wrote it"}

    # ---------------------------------------------------------------- programs

    def _recorded(self, command: str) -> Path:
        argv = with_python(_words(command))
        out = default_directory(argv, self._folder)
        with tempfile.TemporaryFile("w+") as log:
            said = self._start(("why", "--stop", "--out", str(out), "--", *argv), log, most=_WHY_S)
        if not (out / MANIFEST).exists():
            raise ProfilerError(said.removeprefix("error: ") or "nothing was recorded")
        return out

    def _start(self, words: tuple[str, ...], out: Any, good: tuple[int, ...] = (), most: float = _CHECK_S) -> str:
        """Run a command of the profiler, whose output goes to a file: standard output belongs to the agent.

        :param good: its exit codes; empty: any, as those of a recorded program.
        :param most: seconds after which it gets SIGTERM, which ends the recorded program too.
        :returns: the last line on its standard error.
        :raises ProfilerError: runs are not allowed, or it failed.
        """
        if not self.allow_runs:
            raise ProfilerError("this server starts no programs: give what was recorded, or start it with --allow-runs")
        argv = [sys.executable, "-P", "-c", _MAIN, str(_ROOT), *words]
        with tempfile.TemporaryFile("w+") as errors:
            code = _exit_code(argv, out, errors, most)
            out.seek(0)
            errors.seek(0)
            last = errors.read().strip().rpartition("\n")[2]
        if good and code not in good:
            raise ProfilerError(last.removeprefix("error: ") or f"{words[0]} ended with exit code {code}")
        return last


# ---------------------------------------------------------------- what was given, and what is shown


def _exit_code(argv: list[str], out: Any, errors: Any, most: float) -> int:
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=errors) as process:
        try:
            return process.wait(most)
        except subprocess.TimeoutExpired:
            process.terminate()
            return process.wait()


def _words(command: str) -> list[str]:
    """:raises ProfilerError: a quote has no end."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise ProfilerError(f"command: {error}: {command!r}") from error
    if not words:
        raise ProfilerError("the command is empty")
    return words


def _given(run: str) -> Path:
    """:raises ProfilerError: nothing was given."""
    if not run:
        raise ProfilerError("give `run`: the directory of a recorded run, such as reports/runs/20260101-120000-train")
    return Path(run)


def _analysed(run: str) -> tuple[Path, Analysis]:
    """:raises ProfilerError: the run was counted, so that its times say nothing."""
    path = _given(run)
    loaded = load(path)
    if loaded.info.is_counted:
        raise ProfilerError(f"{path} was counted, so its times say nothing: {call('lint', path)}")
    return path, analyse_run(loaded)


def _counts(run: Run, path: Path) -> Answer:
    from profiler.analyse.timing.counts import run_counts
    from profiler.report.counts import count_report

    screen = count_report(run_counts(run)).first
    assert screen is not None
    why = [screen.context_line(), screen.headline.text, *screen.why]
    return {"run": str(path), "why": why, "next_step": call("lint", path)}


def _ledger_step(analysis: Analysis, run: Path, line: str) -> str:
    """Return the cure of a line, or the line to read; where no line is given, the one with most time."""
    ledger = analysis.ledger
    assert ledger is not None, "its report was made"
    cells = [cell for cell in ledger.cells if cell.place and cell.is_own and cell.owner is not Owner.IMPORT]
    cells.sort(key=lambda cell: cell.period not in (Period.STEPS, Period.UNSEEN))  # those with most seconds stay first
    if not line:
        first = next((cell.place for cell in cells if cell.place), None)
        return call("ledger", run, line=place(first)) if first else run_step(analysis, run)
    named = (site for each in analysis.findings for site in lines_of(each))
    site = next((each for each in (*named, *(cell.place for cell in cells)) if each and _is_at(each, line)), None)
    if site is None:
        return call("lines", run)
    here = [cell for cell in cells if cell.is_at((site.place,)) and cell.period is cells[0].period]
    own = ledger.own_seconds(cells[0].period) if cells else 0.0
    share = sum(cell.seconds for cell in here) / own if own else 0.0
    return line_step(analysis, site) or read_step(analysis, place(site), share)


def _is_at(site: Site, line: str) -> bool:
    """Tell whether FILE:LINE names a line; FILE may be the end of its path."""
    file, _, number = line.rpartition(":")
    return str(site.line) == number and (site.file == file or PurePath(site.file).match(file))


def _result(given: str) -> tuple[dict[str, Any], Path]:
    """:raises ProfilerError: there is no result of a check or of a comparison, or it is damaged."""
    if not given:
        raise ProfilerError("give `result`: a check.json or compare.json, or the folder of one")
    path = Path(given)
    files = [path / "check.json", path / "compare.json"] if path.is_dir() else [path]
    file = next((each for each in files if each.is_file()), None)
    if file is None:
        raise ProfilerError(f"there is no check.json or compare.json at {path}: write one with check or compare")
    try:
        document = read_json(file)
    except ValueError as error:
        raise ProfilerError(f"{file} is no result of check or compare") from error
    if not isinstance(document, dict) or not str(document.get("schema", "")).startswith(("check", "comparison/")):
        raise ProfilerError(f"{file} is no result of check or compare")
    return document, file


def _compared(document: dict[str, Any]) -> Answer:
    """Return what a comparison says of the speed of each side, with a row for each ratio to the first side."""
    rows = [
        {"side": side, "measure": name, **{key: ratio.get(key) for key in _RATIO}}
        for side, ratios in document["ratios"].items()
        for name, ratio in ratios.items()
        if ratio.get("value") is not None or ratio.get("bound") is not None
    ]
    answer = {name: document.get(name) for name in ("headline", "verdict", "comparable", "pairs", "why", "next_step")}
    return answer | {"ratios": [_rounded(row) for row in rows]}


def _checked(document: dict[str, Any]) -> Answer:
    """Return what a check says, without its rounds and counters."""
    speed, counters = document.get("throughput") or {}, document.get("counters") or {}
    answer = {name: document.get(name) for name in ("state", "sentence", "explanation", "doubts", "checks")}
    answer |= {f"speed_{name}": speed.get(name) for name in ("state", "reason", "lines", "confirmed")}
    answer |= {"counters_state": counters.get("state")}
    answer |= {"causes": [{name: each.get(name) for name in _CAUSE} for each in document.get("causes", ())]}
    return {name: value for name, value in answer.items() if value not in (None, [], "")}


def _is_import(source: str) -> bool:
    """Tell whether a line only imports: no edit of it makes a step faster."""
    return source.startswith(("import ", "from "))


def _cell(cell: blocks.Cell) -> str:
    """Return the text of a cell with its small print, of code the whole path; empty: nothing is known."""
    text = (cell.title or cell.text) if cell.code else cell.text
    note = f"({cell.note})" if cell.note else ""
    return " ".join(filter(None, ("" if text == blocks.NOTHING else text, cell.unit, note)))


def _rounded(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with three significant digits, without what is not known."""
    return {
        name: float(f"{value:.3g}") if isinstance(value, float) else value
        for name, value in row.items()
        if value not in ("", None)
    }
