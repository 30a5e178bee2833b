"""`lint` from the command line to its exit code, and which lines it names."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from profiler import lint
from profiler.__main__ import main
from profiler.check.model import Change, CountedLine
from profiler.core.errors import ProfilerError
from profiler.lint import LibraryLine, LintFinding, LintResult, find, lint_json, lint_lines, pinned_copy
from profiler.run.model import MadeObject, Site
from tests.commands.check_programs import make_repository
from tests.fakes.counting import at, lines_of, one
from tests.fakes.programs import ROOT

PROGRAM = """
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(4, 2).cuda()
while True:  # no optimizer: the first one of a process imports torch's compiler
    x = torch.randn(8, 4).to("cuda")
    loss = model(x).square().mean()
    model.zero_grad()
    loss.backward()
    print(loss.item())
    total = loss.item()  # profiler: ignore
"""
LINES = PROGRAM.splitlines()


def rules(*lines: tuple[CountedLine, float], growing: Sequence[tuple[str, int]] = ()) -> dict[int, str]:
    """Line -> rule, for lines that were counted in 20 steps."""
    findings = find(one(lines=lines_of(*lines), growing=growing), lambda *_: "")
    return {finding.change.line: finding.rule for finding in findings}


def test_what_happens_in_every_step_is_a_finding() -> None:
    assert rules(at(3, 20, "loss.item()", counter="syncs")) == {3: "hidden-sync"}
    assert rules(at(3, 2, "loss.item()", counter="syncs")) == {}, "every tenth step"
    assert rules(at(3, 400, "x[i].item()", counter="syncs")) == {3: "per-element-reads"}
    assert rules(at(3, 20, "loss.item()  # profiler: ignore", counter="syncs")) == {}
    leak = at(3, 20 * 128, "history.append(loss)", counter="growth_bytes")
    assert rules(leak, growing=[("train.py", 3)]) == {3: "memory-creep"}
    assert rules(leak) == {}, "in some steps more, in others less: batches differ in length"
    assert rules(at(3, 1, "model(x)", counter="graph_breaks")) == {3: "graph-breaks"}


def test_a_copy_is_one_finding_and_not_also_a_wait() -> None:
    for text, rule in (("x = torch.zeros(4).to(device)", "made-on-host"), ("x = x.to(device)", "pageable-copies")):
        rows = [at(3, 20, text, counter=name, operation="to pageable") for name in ("h2d", "syncs", "h2d_bytes")]
        assert rules(*rows) == {3: rule}


def pinned(line: int, counter: str) -> tuple[CountedLine, float]:
    return at(line, 20, "for batch in loader:", counter=counter, operation="to pinned")


def test_a_copy_of_pinned_memory_is_a_finding_only_where_the_host_waits() -> None:
    (found,) = find(one(lines=lines_of(*(pinned(3, name) for name in ("h2d", "syncs", "h2d_bytes")))), lambda *_: "")
    assert found.fix.startswith("Pass non_blocking=True")
    assert not found.instead
    assert rules(pinned(3, "h2d")) == {}


def test_a_test_of_a_mask_that_selects_is_cured_with_the_selection() -> None:
    rows = [
        at(line, 20, text, counter="syncs", operation=operation)
        for operation, line, text in (("bool", 3, "if mask.any():"), ("nonzero", 4, "rows = mask.nonzero()"))
    ]
    first, second = find(one(lines=lines_of(*rows)), lambda *_: "")
    assert first.fix == second.fix
    assert "sort by group once" in first.fix
    (alone,) = find(one(lines=lines_of(rows[0])), lambda *_: "")
    assert "cannot read it less often" in alone.fix


def test_the_line_that_makes_the_object_is_named() -> None:
    made = {
        name: LibraryLine("train.py", number, "main", f"{name}()")
        for number, name in ((7, "GradScaler"), (8, "Optimizer"))
    }
    for source, line in (("scaler.step(optimizer)", 7), ("optimizer.step()", 8), ("timer.step()", 0)):
        counted = one(lines=lines_of(at(3, 20, source, counter="syncs")))
        (found,) = find(counted, lambda *_: "", made=made)
        assert (found.made_at.line if found.made_at else 0) == line
        shown = "\n".join(lint_lines(LintResult((found,), 8, 1.0)))
        assert (f"made at train.py:{line}" in shown) == bool(line)


def test_the_summary_comes_last() -> None:
    assert list(lint_lines(LintResult((), 8, 0.0)))[-1].startswith("No finding in 8 counted steps")


def fix_of(operation: str, source: str) -> str:
    (found,) = find(one(lines=lines_of(at(3, 20, source, counter="syncs", operation=operation))), lambda *_: "")
    return found.fix


def test_the_line_of_a_library_decides_about_the_cure_before_that_of_the_program() -> None:
    lines = lines_of(at(3, 20, "batch = FragmentBatch(columns, lengths)", counter="syncs", operation="bool"))
    library = LibraryLine("rollkit/__init__.py", 11, "FragmentBatch.__init__", "self.longest = int(max(lengths))")
    file = "train.py"
    (found,) = find(one(lines=lines), lambda *_: "", {(file, 3, "bool"): library})
    assert "built-in functions" in found.fix
    screen = list(lint_lines(LintResult((found,), 8, 1.0)))
    assert "    rollkit/__init__.py:11 in FragmentBatch.__init__()  self.longest = int(max(…" in screen
    (shown,) = json.loads(lint_json(LintResult((found,), 8, 1.0)))["findings"]
    assert shown["library"] == library._asdict()
    objects = {(file, 3): [MadeObject(Site(file, 2, "", "model = fast(net)"), "fast")]}
    (made,) = find(one(lines=lines), lambda *_: "", {(file, 3, "bool"): library}, objects=objects)
    assert made.made_at == LibraryLine(file, 2, "", "model = fast(net)")
    (without,) = find(one(lines=lines), lambda *_: "", objects=objects)
    assert without.made_at is None, "the program itself waits"
    (without,) = find(one(lines=lines), lambda *_: "")
    assert "one of its arguments" in without.fix


def test_a_read_within_a_called_function_has_an_advice_of_its_own() -> None:
    for source in (
        "out = self.routes(src, mask=self.mask)",
        'out = routes(src, "in order, or not")',
        "out = routes(src, ids == pad)  # if padded",
        "for name, value in scheduled(loss):",
    ):
        assert fix_of("bool", source).startswith("A function that this line calls reads the value.")
    for source in (
        "if loss > 3:",
        "elif loss.isfinite():  # a comment",
        "assert loss.isfinite()",
        "return best(a) if loss else worst(a)",
        "kept = [log(x) for x in xs if x]",
    ):
        assert fix_of("bool", source).startswith("The program decides by this value"), source
    assert fix_of("bool", "top = max(losses)").startswith("Use the tensor's own method")
    for source in ("mask=self.mask,", "a = loss"):
        assert fix_of("bool", source).startswith("Keep the value on the device"), source
    assert fix_of("item", "loss.item()").startswith("Keep the value on the device")


@pytest.mark.parametrize(
    ("source", "instead"),
    [
        ("x = ids[:, i:j].to(device)", "x = ids[:, i:j].pin_memory().to(device, non_blocking=True)"),
        ("x = x.cuda(non_blocking=False)", "x = x.pin_memory().cuda(non_blocking=True)"),
        ("x, y = x.to(device), y.to(device)", ""),
        ("model(x.to(device),", ""),
    ],
)
def test_a_pageable_copy_is_written_anew(source: str, instead: str) -> None:
    assert pinned_copy(source) == instead


@pytest.fixture
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of its own as the working directory, from which scripts find the profiler."""
    if torch.cuda.is_available():
        pytest.skip("virtual devices need a machine without a GPU")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


@pytest.mark.usefixtures("in_folder")
def test_a_script_from_its_steps_to_the_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    Path("train.py").write_text(PROGRAM)
    assert main(["lint", "--format", "json", "train.py"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["steps"], found["syncs_per_step"]) == (8, 3.0)
    assert {(each["file"], each["line"], each["rule"]) for each in found["findings"]} == {
        ("train.py", LINES.index('    x = torch.randn(8, 4).to("cuda")') + 1, "made-on-host"),
        ("train.py", LINES.index("    print(loss.item())") + 1, "hidden-sync"),
    }
    assert found["findings"][0]["instead"] == "torch.randn(8, 4, device='cuda')"
    assert main(["lint"]) == 2


@pytest.mark.slow
@pytest.mark.usefixtures("in_folder")
def test_ignored_rules_and_broken_scripts(capsys: pytest.CaptureFixture[str]) -> None:
    Path("train.py").write_text(PROGRAM)
    assert main(["lint", "--ignore", "hidden-sync", "--ignore", "made-on-host", "train.py"]) == 0
    Path("broken.py").write_text("import torch\nraise SystemExit('no data')\n")
    assert main(["lint", "broken.py"]) == 2
    error = capsys.readouterr().err
    assert "no data" in error
    assert Path(error.rpartition("(its output is in ")[2].rstrip(")\n")).is_dir(), "the folder that the error names"
    assert main(["lint"]) == 2
    marked = f"import profiler{PROGRAM}    profiler.step()\n"
    Path("short.py").write_text(marked.replace("while True:", "for _ in range(3):"))
    assert main(["lint", "short.py"]) == 2
    assert "ended during its 2 warm-up steps: let it take 10 steps or more" in capsys.readouterr().err
    assert main(["lint", "--ignore", "hidden-snc", "train.py"]) == 2
    assert "there is no rule hidden-snc" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.usefixtures("in_folder")
def test_a_script_that_uses_no_device_is_not_judged(capsys: pytest.CaptureFixture[str]) -> None:
    quiet = "\n".join(line for line in LINES if ".item()" not in line)
    Path("cpu.py").write_text(quiet.replace(".cuda()", "").replace('.to("cuda")', ""))
    assert main(["lint", "cpu.py"]) == 2
    assert "used no CUDA device" in capsys.readouterr().err
    assert main(["lint", "--cpu", "cpu.py"]) == 0
    Path("quiet.py").write_text(quiet.replace('randn(8, 4).to("cuda")', 'randn(8, 4, device="cuda")'))
    assert main(["lint", "quiet.py"]) == 0, "nothing is copied or read in a step"


SAVES = (
    PROGRAM.replace("while True:  # no", "step = 0\nwhile True:  # no")
    + """    step += 1
    if step % 5 == 0:
        kept = [float(value) for value in model.weight.detach().cpu().flatten().tolist() for _ in range(9)]
        for value in model.weight.flatten():
            value.item(), value.item(), value.item()
"""
)


@pytest.mark.slow
@pytest.mark.usefixtures("in_folder")
def test_a_checkpoint_in_every_fifth_step_is_not_reported(capsys: pytest.CaptureFixture[str]) -> None:
    Path("train.py").write_text(SAVES)
    assert main(["lint", "--format", "json", "train.py"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["syncs_per_step"] > 3, "it does occur in these steps"
    lines = SAVES.splitlines()
    assert {lines[each["line"] - 1].strip() for each in found["findings"]} == {
        'x = torch.randn(8, 4).to("cuda")',
        "print(loss.item())",
    }


@pytest.mark.slow
@pytest.mark.usefixtures("in_folder")
def test_only_new_findings_fail_with_a_revision_or_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    Path("train.py").write_text(PROGRAM)
    make_repository("train.py")
    assert main(["lint", "--new-since", "HEAD", "train.py"]) == 0
    assert main(["lint", "--baseline", "ci/lint.json", "--update", "train.py"]) == 0
    assert main(["lint", "--baseline", "ci/lint.json", "train.py"]) == 0
    Path("train.py").write_text(f"# moved\n{PROGRAM}    loss.mean().item()\n")
    capsys.readouterr()
    for options in (["--new-since", "HEAD"], ["--baseline", "ci/lint.json"]):
        assert main(["lint", "--format", "json", *options, "train.py"]) == 1
        (found,) = json.loads(capsys.readouterr().out)["findings"]
        assert found["source"] == "loss.mean().item()"


def test_options_of_lint_that_contradict_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--update"], ["--update", "--baseline", "b.json", "--new-since", "HEAD"]):
        assert main(["lint", *words, "train.py"]) == 2
        assert "--update writes all findings to a file: add --baseline FILE" in capsys.readouterr().err


def finding(line: int, source: str) -> LintFinding:
    return LintFinding(
        "hidden-sync", "It waits", Change("syncs", "train.py", line, "main", "item", 0, 1, source), "Do not."
    )


def test_an_accepted_finding_may_move_and_counts_once(tmp_path: Path) -> None:
    file = tmp_path / "new" / "lint.json"
    lint.write(LintResult((finding(3, "x.item()"), finding(9, "y.item()")), 8, 2.0), file)
    now = LintResult((finding(4, "x.item()"), finding(5, "x.item()"), finding(6, "z.item()")), 8, 3.0)
    assert [each.change.line for each in lint.without_known(now, file).findings] == [5, 6]
    for text in ("", "[]", '{"findings": [1]}', '{"findings": [{"rule": 1}]}'):
        file.write_text(text)
        with pytest.raises(ProfilerError, match="is no baseline of lint"):
            lint.without_known(now, file)
    with pytest.raises(ProfilerError, match="there is no baseline"):
        lint.without_known(now, tmp_path / "none.json")


@pytest.mark.slow
@pytest.mark.usefixtures("in_folder")
def test_a_setting_that_costs_operators_is_a_finding_at_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    Path("train.py").write_text(
        PROGRAM.replace("from torch import nn\n", "from torch import nn\ntorch.use_deterministic_algorithms(True)\n")
    )
    assert main(["lint", "--format", "json", "train.py"]) == 1
    found = {each["rule"]: each for each in json.loads(capsys.readouterr().out)["findings"]}
    assert found["memory-fills"]["source"] == "torch.use_deterministic_algorithms(True)"
    assert "fill_uninitialized_memory" in found["memory-fills"]["fix"]
    program = Path("train.py").read_text()
    Path("train.py").write_text(program.replace("rithms(True)", "rithms(True)  # profiler: ignore"))
    assert main(["lint", "--format", "json", "train.py"]) == 1
    assert "memory-fills" not in capsys.readouterr().out
