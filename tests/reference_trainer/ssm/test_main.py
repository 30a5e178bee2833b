"""The command line of the sweep: every bad input is one line and exit code 2, before any work where it can be."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from reference_trainer.ssm import __main__ as command
from reference_trainer.ssm import optimization, sweep
from reference_trainer.ssm.__main__ import main
from reference_trainer.ssm.plan import Plan
from reference_trainer.ssm.problem import GD, GNC
from reference_trainer.ssm.settings import Settings
from tests.fakes.programs import ROOT
from tests.reference_trainer.processes import raising, refused
from tests.reference_trainer.ssm import fake_jobs

QUICK = ("--device", "cpu", "--num-seeds", "2", "--teacher-ranks", "1", "--student-dims", "4,", "8")


@pytest.fixture(autouse=True)
def fake_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """No fits: this is of the words around them."""
    usual = sweep.sweep
    monkeypatch.setattr(sweep, "sweep", lambda *inputs, **kw: usual(*inputs, **{"work": fake_jobs.work, **kw}))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--variant", "nope"), "unknown variant 'nope': choose as-found or fixed"),
        (("--variant", "fixed", "--fixes", "flat-sweep"), "--variant means nothing beside --fixes: leave one out"),
        (("--fixes", "nope"), "unknown fix 'nope': choose from device-data, "),
        (("--device", "nope"), "unknown device 'nope': choose one of auto, cpu, cuda, "),
        (("--num-seeds", "0"), "--num-seeds 0: must be at least 1"),
        (("--first-seed", "-1"), "--first-seed -1: must be at least 0"),
        (("--student-dims", "8", "x"), "--student-dims 'x': must be a whole number"),
        (("--student-dims", ","), "--student-dims: give at least one value"),
        (("--student-dims", "8,8"), "--student-dims: a value is given twice"),
        (("--teacher-ranks", "0"), "--teacher-ranks 0: must be at least 1"),
        (("--no-gd", "--no-gnc"), "nothing to do: remove --no-gd or --no-gnc"),
        (("--first-seed", str(2**63 - 2), "--num-seeds", "3"), "--num-seeds 3: the last seed must be below 9,223,"),
        (("--teacher-ranks", str(2**24)), "--teacher-ranks 16777216: must be below 16,777,216"),
        (("--student-dims", str(2**31)), "--student-dims 2147483648: must be below 2,147,483,648"),
        (("--num-seeds", "10000000"), "--num-seeds 10000000: with all ranks and dimensions these are 20,000,000 jobs"),
        (("--performance", "wrong.toml"), "--performance wrong.toml: max_load is 7, it must be a share"),
        (("--optimizer", "nope"), "unknown optimizer 'nope': choose one of adam, sgd"),
        (("--lr", "nan"), "--lr nan: must be a number above 0"),
        (
            ("--engine", "pool"),
            "--engine has no effect without the fix 'flat-sweep', because jobs then run one after another: add it",
        ),
        (("--workers", "2"), "--workers has no effect without the fix 'flat-sweep'"),
        (("--engine", "inline", "--workers", "2"), "--workers has no effect without the fix 'flat-sweep'"),
        (("--address", "x:1"), "--address has no effect without the fix 'flat-sweep'"),
        (("--variant", "fixed", "--address", "x:1"), "engine pool has no --address: leave it out"),
        (("--variant", "fixed", "--engine", "nope"), "unknown engine 'nope': choose one of inline, pool, ray"),
        (("--variant", "fixed", "--workers", "0"), "--workers 0: must be at least 1"),
        (("--results", ""), "--results is empty: name a path, or leave --results out"),
        (("--batch-size", "9"), "--batch-size has no effect without the fix 'batched-draws': add it, or leave"),
        (("--fixes", "batched-draws", "--gd", "--batch-size", "8"), "--batch-size has no effect without the method"),
        (("--batch-size", "0"), "--batch-size 0: must be at least 1"),
        (("--log", ""), "--log is empty"),
        (("--result", ""), "--result is empty"),
        (("--result", "no/x.json"), "--result no/x.json: there is no folder no"),
        (("--results", "a", "--result", "./a"), "--result a: that is the file of --results: name another"),
        (("--results", "a", "--log", "a"), "--log a: that is the file of --results: name another"),
        (("--results", "no/x"), "--results no/x: there is no folder no"),
        (("--results", "notes.txt"), "--results notes.txt: this is not a results file, or it has another version"),
        (("--log", "no/x"), "--log no/x: there is no folder no"),
        (("--max-load", "2"), "performance: max_load is 2.0, it must be a share, above 0 and at most 1"),
        (("--precision", "bf16"), "performance setting precision means nothing here"),
        (("--tf32",), "performance setting tf32 means nothing here: only GPUs"),
    ],
)
def test_bad_input_is_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.txt").write_text("mine\n")
    (tmp_path / "wrong.toml").write_text("[performance]\nmax_load = 7\n")
    assert message in refused(main, capsys, *QUICK, *arguments)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notes.txt", "wrong.toml"]


@pytest.mark.parametrize("option", ["--result", "--log"])
def test_results_are_not_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str) -> None:
    results = tmp_path / "results.jsonl"
    assert main([*QUICK, "--results", str(results)]) == 0
    before = results.read_bytes()
    message = f"error: {option} {results}: it contains the results of a sweep (--results): name another\n"
    assert refused(main, capsys, *QUICK, option, str(results)) == message
    assert results.read_bytes() == before


def test_what_is_no_option_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--seeds", "3"])
    assert caught.value.code == 2
    assert capsys.readouterr().err == "error: unrecognized arguments: --seeds 3; --help lists all options\n"


def test_options_become_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    observed: list[Settings] = []
    monkeypatch.setattr(command, "_sweep", lambda settings, *_: observed.append(settings) or 0)
    parts = "--gd --no-gnc --sequence-length 9 --measurements 3 --epochs 5 --lr 0.5 --fixes flat-sweep,,flat-sweep"
    assert main([*QUICK, *parts.split(), "--engine", "pool", "--workers", "3", "--first-seed", "4"]) == 0
    assert main(["--device", "cpu"]) == 0
    assert observed[0] == Settings(
        device="cpu",
        num_seeds=2,
        first_seed=4,
        teacher_ranks=(1,),
        student_dims=(4, 8),
        gnc=False,
        sequence_length=9,
        measurements=3,
        epochs=5,
        lr=0.5,
        fixes=("flat-sweep",),
        engine="pool",
        workers=3,
    )
    assert observed[1] == Settings(device="cpu")


def test_options_may_have_underscores_which_help_does_not_list() -> None:
    parser = command._parser()
    parts = "--num_seeds 3 --student_dims=4 --gnc_loss 0.5 --no_gnc --max_load 0.5 --log a_b --results=c_d"
    settings = command._settings(parser.parse_args(parts.split()))
    assert (settings.num_seeds, settings.student_dims, settings.gnc_loss, settings.gnc) == (3, (4,), 0.5, False)
    assert (settings.log, settings.results) == (Path("a_b"), Path("c_d")), "values stay as they are"
    assert "--num_" not in parser.format_help()


@pytest.mark.parametrize(
    ("parts", "methods"),
    [
        ("", (GD, GNC)),
        ("--gd", (GD,)),
        ("--gnc", (GNC,)),
        ("--no-gd", (GNC,)),
        ("--no-gnc", (GD,)),
        ("--gd --gnc", (GD, GNC)),
    ],
)
def test_a_method_that_is_named_alone_is_the_only_one(parts: str, methods: tuple[str, ...]) -> None:
    assert command._settings(command._parser().parse_args(parts.split())).methods == methods


def test_a_sweep_is_summed_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results, result = tmp_path / "results", tmp_path / "r.json"
    options = (*QUICK, "--results", str(results), "--result", str(result))
    assert main([*options]) == 0
    out = capsys.readouterr().out
    assert "as-found on cpu: 8 jobs in 8 groups, engine inline, workers: 1\n" in out
    assert "8 of 8 jobs done, 0 failed, 0 retried; success rate 100.0%\n" in out
    assert "cpu: 8 jobs, 0 failed attempts, success rate 100.0%, 0.01 MiB per job, workers busy " in out
    assert re.search(r"s, [\d,.]+ jobs/s, workers: 1; including their start [\d.]+ s, [\d,.]+ jobs/s\n", out)
    assert "MiB per job in addition to what its process held before\n" in out
    assert "generalization" in out
    actual = json.loads(result.read_text())
    assert (actual["jobs"], actual["done"], actual["success_rate"], actual["workers"]) == (8, 8, 1.0, 1)
    assert len(actual["cells"]) == 4
    assert main([*options, "--fixes", "batched-seeds", "--num-seeds", "3"]) == 0
    out = capsys.readouterr().out
    assert f"8 of 12 jobs are in {results}\n" in out
    assert "12 of 12 jobs done (8 by an earlier sweep), 0 failed" in out
    assert main([*options]) == 0, "nothing is left to do"
    assert "8 of 8 jobs done (8 by an earlier sweep), 0 failed, 0 retried\n" in capsys.readouterr().out


def test_failures_are_exit_code_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fails = fake_jobs.always_failing
    usual = sweep.sweep
    monkeypatch.setattr(sweep, "sweep", lambda *inputs, **kw: usual(*inputs, **kw, work=fails))
    assert main([*QUICK, "--num-seeds", "6", "--result", str(tmp_path / "r.json")]) == 1
    printed = capsys.readouterr()
    assert "0 of 24 jobs done, 24 failed, 24 retried; success rate 0.0%" in printed.out
    lines = printed.err.splitlines()
    assert lines[0] == "error: gd-r1-d4-s0: ValueError: no luck"
    assert (len(lines), lines[-1]) == (11, "error: and 14 more")
    assert len(json.loads((tmp_path / "r.json").read_text())["failures"]) == 24


def test_an_interrupt_says_that_nothing_is_kept(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sweep.ResultFile, "add", raising(KeyboardInterrupt()))
    assert main([*QUICK]) == 130
    assert capsys.readouterr().err == "interrupted after 1 jobs; nothing is kept because --results was not given\n"


def test_the_list_of_fixes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list-fixes", "--device", "cpu"]) == 0
    actual = json.loads(capsys.readouterr().out)
    assert actual["device"] == "cpu"
    assert actual["fixed"][0] == "device-data"


def test_help_and_the_list_load_no_heavy_library() -> None:
    heavy = "{'torch', 'numba', 'pandas', 'rich', 'ray', 'numpy', 'scipy'}"
    code = f"import sys; from reference_trainer.ssm.__main__ import main; main(['--list-fixes', '--device', 'cpu']); \
        loaded = {heavy} & set(sys.modules); sys.exit(str(loaded) if loaded else 0)"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, timeout=60)


def test_the_optimisation_test(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen: list[object] = []
    monkeypatch.setattr(
        optimization,
        "run",
        lambda settings, fixed, device, result: seen.append((fixed, device, result)) or 0,
    )
    assert main([*QUICK, "--test-optimizations", "--result", str(tmp_path / "r.json")]) == 0
    assert main([*QUICK, "--test-optimizations", "--fixes", "quiet-logging"]) == 0
    [(fixed, device, result), (kw, _, none)] = seen
    assert fixed.flat
    assert fixed.device_data
    assert kw == Plan(quiet=True)
    assert (device, result, none) == ("cpu", tmp_path / "r.json", None)


@pytest.mark.parametrize(
    "parts",
    [
        "--variant fixed",
        "--results r",
        "--workers 2",
        "--engine pool --fixes flat-sweep",
        "--batch-size 8 --fixes batched-draws",
    ],
)
def test_options_that_mean_nothing_to_the_optimisation_test(parts: str, capsys: pytest.CaptureFixture[str]) -> None:
    line = refused(main, capsys, *QUICK, "--test-optimizations", *parts.split())
    assert re.match(r"error: --(variant|results|workers|engine|batch-size)\b", line)
