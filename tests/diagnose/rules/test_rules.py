"""Each rule fires on a step that has its illness, and on no step that only looks like it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from string import Formatter
from typing import Any

import pytest

from profiler.analyse.model.analysis import Analysis
from profiler.analyse.model.device import CallSite, DevicePart, HostState, IdleBlame, SiteOrigin
from profiler.analyse.model.finding import Confidence, Finding, GainMethod, Place, RuleText
from profiler.analyse.model.host import (
    AFTER_OPTIMIZER,
    LibraryFunction,
    LineCost,
    OperatorLine,
    Period,
    Phase,
    Preparation,
    SpikeLine,
    Spikes,
    Stage,
    StageCost,
    StageTime,
    TableGradient,
    ThreadActivity,
    ThreadState,
    UnmeasuredPeriod,
)
from profiler.analyse.model.input import MARKED_DATA, BatchCurve, InputPart, LoaderSettings, LoaderUse
from profiler.analyse.model.ledger import MAIN, Cell, Ledger, Owner, Recurrence
from profiler.analyse.model.ledger import Period as LedgerPeriod
from profiler.analyse.model.measures import Measure
from profiler.analyse.model.ranks import RankActivity, RankLedger, Straggler
from profiler.core.errors import Notice
from profiler.diagnose.board import Board, Rest
from profiler.diagnose.findings import find, with_growth
from profiler.diagnose.model import DENORMAL_COMPUTING
from profiler.diagnose.rule import Claim, StepCosts, exactly, largest_sites
from profiler.diagnose.rules._lines import mostly_waits
from profiler.diagnose.rules.device import cure_of_copy, filled_on_device
from profiler.diagnose.rules.ranks import forward_before
from profiler.diagnose.rules.reads import cure_of_read
from profiler.report.finding_text import doubt_text, finding_sentence, finding_text, not_judged_text
from profiler.run.model import MadeObject, RunInfo, Site, StepDefinition, StepKind
from profiler.run.tables import MADE_BY, SETTINGS

SITE = Site("train.py", 14, "Images.__getitem__")


def step(*parts: InputPart, use: LoaderUse | None = None, gc: float = 0.0, **shares: float) -> Analysis:
    """A step of 100 ms on the CPU of a machine with 4 cores; `shares` are those of its categories."""
    facts: dict[str, Any] = {"device": "cpu", "cores": 4, "torch_threads": 1}
    measures = {"step_time": Measure("step_time", 0.1, "s"), "gc_time": Measure("gc_time", gc, "s/step")}
    breakdown = {
        name: Measure(name, 0.1 * share, "s/step", 0.09 * share, 0.11 * share) for name, share in shares.items()
    }
    line = at({name: 0.1 * share for name, share in shares.items()})
    info = RunInfo(2, "r", "", ("train.py",), facts=facts, host={"cores": 4})
    return Analysis(info, measures, breakdown, {}, input=parts, loader=use, lines=(line,))


def at(seconds: Mapping[str, float], site: Site = SITE) -> LineCost:
    """A line with these seconds per step, by category."""
    whole = sum(seconds.values())
    return LineCost(site, "", whole, 10 * whole, 9 * whole, 11 * whole, 200, seconds)


def with_facts(analysis: Analysis, **facts: Any) -> Analysis:
    return replace(analysis, info=replace(analysis.info, facts={**analysis.info.facts, **facts}))


def worker(name: str, share: float) -> InputPart:
    return InputPart(name, "worker", 0.1 * share, share, SITE)


def main_process(name: str, share: float, context: Any = "loader") -> InputPart:
    return InputPart(name, "main process", 0.1 * share, share, SITE, context)


def found(analysis: Analysis) -> list[str]:
    """Names of the rules that fire, in their order; a star stands for a finding about the same time as another."""
    findings = causes(analysis)
    for finding in findings:
        check_words(finding)
    return [f"{finding.rule.name}{'*' * bool(finding.overlaps)}" for finding in findings]


def causes(analysis: Analysis) -> list[Finding]:
    """The findings of rules, without the time that none of them explains."""
    return [finding for finding in find(analysis)[0] if finding.has_cure]


def check_words(finding: Finding) -> None:
    """All templates of its rule have their values, and no sentence is left out of what a finding needs."""
    text = finding_text(finding)
    assert text.title
    assert text.fix
    names = (name for _, name, _, _ in Formatter().parse(finding.rule.code) if name)
    lacks = any(name in ("opened", "optimizer", "own") and finding.values.get(name) is None for name in names)
    assert bool(text.code) == bool(finding.rule.code) or lacks
    assert text.evidence, "a figure shows it"
    assert not any(sign in " ".join((text.title, text.fix, text.code, *text.evidence)) for sign in ("{", "}", "None"))
    assert finding.is_of_run or finding_sentence(finding).endswith(
        "as fast without it." if finding.gains else "of each step."
    )


def first(analysis: Analysis) -> Finding:
    return causes(analysis)[0]


def gain_of(rule: str, analysis: Analysis) -> float:
    return next(finding.gain for finding in causes(analysis) if finding.rule.name == rule)


ALONE = LoaderUse(1.0, 0.0)
WAITS = main_process("waiting for the workers", 0.6)
BUSY = LoaderUse(1.0, 0.0, 2, worker_cpu=0.9, worker_core_wait=0.02)
SLEEPING = LoaderUse(1.0, 0.0, 2, worker_cpu=0.03, worker_core_wait=0.0)


@pytest.mark.parametrize(
    ("analysis", "expected"),
    [
        # loaders in the training process: an expensive dataset or collate function, and one of cheap batches
        (
            step(main_process("dataset", 0.5), use=ALONE, input=0.5, compute=0.5),
            "no-workers slow-dataset-item*",
        ),
        (
            step(main_process("collate", 0.5), use=ALONE, input=0.5, compute=0.5),
            "no-workers slow-collate*",
        ),
        (
            step(main_process("tokenize", 0.5), use=ALONE, input=0.5, compute=0.5),
            "no-workers inline-tokenization*",
        ),
        (step(main_process("dataset", 0.5), use=LoaderUse(100.0, 0.0), input=0.5, compute=0.5), "slow-dataset-item"),
        (step(main_process("dataset", 0.04), use=ALONE, input=0.04, compute=0.96), ""),
        # workers that cannot keep up, with cores left, and without
        (
            step(WAITS, worker("dataset", 1.2), use=BUSY, input=0.6, compute=0.4),
            "too-few-workers slow-dataset-item*",
        ),
        (
            step(
                WAITS,
                worker("dataset", 1.9),
                use=replace(BUSY, workers=3),
                input=0.6,
                compute=0.4,
            ),
            "slow-dataset-item",
        ),
        (
            step(
                WAITS,
                worker("dataset", 2.9),
                use=replace(SLEEPING, workers=3),
                input=0.6,
                compute=0.4,
            ),
            "too-few-workers slow-dataset-item*",
        ),
        (step(worker("waiting for an index", 0.9), worker("dataset", 0.1), use=BUSY, input=0.01, compute=0.99), ""),
        (
            step(
                main_process("waiting for the workers", 0.5),
                worker("waiting for an index", 0.6),
                worker("dataset", 0.4),
                use=BUSY,
                input=0.5,
                compute=0.5,
            ),
            "starved-prefetch",
        ),
        # transfers
        (
            step(
                worker("waiting for an index", 0.9),
                worker("dataset", 0.1),
                main_process("receive", 0.5),
                use=BUSY,
                input=0.5,
                compute=0.5,
            ),
            "needless-workers",
        ),
        (
            step(
                worker("waiting for an index", 0.6),
                worker("dataset", 0.9),
                main_process("receive", 0.5),
                use=BUSY,
                input=0.5,
                compute=0.5,
            ),
            "slow-batch-transfer",
        ),
        (
            step(
                worker("waiting for an index", 0.6),
                worker("dataset", 0.1),
                main_process("loader start", 0.4),
                main_process("waiting for the workers", 0.1),
                use=LoaderUse(1.0, 0.1, 2),
                input=0.5,
                compute=0.5,
            ),
            "workers-started-anew",
        ),
        (
            step(
                main_process("the loader itself", 0.4),
                main_process("dataset", 0.1),
                use=LoaderUse(1.0, 1.0, 0),
                input=0.5,
                compute=0.5,
            ),
            "loader-started-anew",
        ),
        # input outside of loaders
        (step(main_process("tokenize", 0.3, "inline"), input=0.3, compute=0.7), "inline-tokenization"),
        (step(main_process("data", 0.3, "inline"), input=0.3, compute=0.7), "inline-input"),
        # the host
        (step(python=0.3, compute=0.7), "python-loop"),
        (step(python=0.3, compute=0.7, gc=0.02), "garbage-collection python-loop"),
        (step(python=0.3, compute=0.7, gc=0.029), "garbage-collection"),
        (step(log=0.3, compute=0.7), "logging-in-loop"),
        (step(checkpoint=0.3, compute=0.7), "synchronous-checkpoint"),
        (step(waiting=0.3, compute=0.7), "blocked-thread"),
        (step(framework=0.3, compute=0.7), "many-small-operators"),
        (step(framework=0.08, compute=0.92), ""),
        (step(gil=0.3, compute=0.7), "thread-holds-gil"),
        # no core
        (step(core=0.3, compute=0.7), "noisy-machine"),
        (with_facts(step(core=0.3, compute=0.7), torch_threads=16), "more-threads-than-cores"),
        (step(throttled=0.3, compute=0.7), "throttled"),
        # several causes, and none
        (step(python=0.3, log=0.2, compute=0.5), "python-loop logging-in-loop"),
        (step(compute=1.0), ""),
        (step(python=0.04, log=0.04, compute=0.92), ""),
    ],
)
def test_the_illness_is_found_and_nothing_else(analysis: Analysis, expected: str) -> None:
    assert found(analysis) == expected.split()


def test_workers_make_batches_on_the_other_cores() -> None:
    """Three workers need a third of the time in which the training process makes its batches."""
    half = first(step(main_process("dataset", 0.5), use=ALONE, input=0.5, compute=0.5))
    assert half.gain == pytest.approx(0.1 / 0.051), "a batch from a worker costs 1 ms"
    assert half.values["workers"] == 3
    most = first(step(main_process("dataset", 0.9), use=ALONE, input=0.9, compute=0.1))
    assert most.gain == pytest.approx(0.3 / 0.0907), "the workers limit then; they need 0.7 ms to send a batch"
    assert most.sites == (SITE,)


def test_the_line_at_which_a_function_begins_is_left_out_beside_a_line_within_it() -> None:
    part = replace(main_process("dataset", 0.5), site=replace(SITE, file="/home/someone/train.py", line=9))
    analysis = step(part, use=LoaderUse(100.0, 0.0), input=0.5, compute=0.5)
    assert first(analysis).sites == (SITE,)
    assert first(replace(analysis, lines=())).sites == (part.site,)


def of_thread(process: str, *lines: tuple[Site, ThreadState, float]) -> ThreadActivity:
    """A thread of a process with its lines: what it does there, and for how many seconds."""
    costs = tuple(LineCost(site, "", spent, 0.4, 0.3, 0.5, 40, {state: spent}) for site, state, spent in lines)
    return ThreadActivity(
        len(process), 1, process, "", ThreadState.MAKING_DATA, 0.9, 0.9, 0.9, 90, None, "", 0.9, None, lines=costs
    )


def test_items_that_workers_make_are_slow_at_the_lines_of_the_workers() -> None:
    begin, line = (replace(SITE, line=number) for number in (14, 17))
    loop = Site("train.py", 40, "main")
    parts = (
        replace(worker("dataset", 0.9), site=begin),
        worker("send", 0.05),
        main_process("receive", 0.5),
        main_process("waiting for the workers", 0.1),
    )
    use = LoaderUse(1.0, 0.0, 3, worker_cpu=0.9, worker_core_wait=0.0)
    slow = replace(step(*parts, use=use, input=0.6, compute=0.4), lines=(at({"input": 0.06}, loop),))
    makes, waits = ThreadState.MAKING_DATA, ThreadState.WAITING_FOR_DATA
    training, working = (loop, waits, 5.0), of_thread("loader worker", (line, makes, 2.0), (loop, makes, 5.0))
    sampled = replace(slow, threads=(of_thread("training process", training), working))
    assert found(sampled) == ["slow-dataset-item"], "the worker is busy, so that it cannot hand its tensors over"
    assert first(sampled).sites == (line,), "the one at which the worker was started is no line of its work"
    assert first(slow).sites == (begin,)
    validating = of_thread("training process", training, (line, makes, 1.0))
    assert first(replace(slow, threads=(validating, working))).sites == (line,), "it makes the same items there"


@pytest.mark.parametrize(
    ("source", "opened"),
    [
        ("with zipfile.ZipFile(self.path) as archive:", "zipfile.ZipFile(self.path)"),
        ("row = pd.read_csv(TABLE, sep=';').iloc[index]", "pd.read_csv(TABLE, sep=';')"),
        ("image = h5py.File('images.h5', mode='r')['x'][index]", "h5py.File('images.h5', mode='r')"),
        ("words = np.memmap(self.path, dtype=np.uint8)", "np.memmap(self.path, dtype=np.uint8)"),
        (
            "x = torch.load(FILE, map_location=torch.device('cpu'))",
            "torch.load(FILE, map_location=torch.device('cpu'))",
        ),
        ("row = pd.read_csv(self.path, skiprows=index, nrows=1)", None),
        ("return torch.load(self.paths[index])", None),
        ("image = np.load(path)", None),
        ("data = np.load(self.folder / f'{index}.npy')", None),
        ("with open(self.path) as file:", None),  # it takes no time
        ("archive.read(name)", None),
    ],
)
def test_a_file_of_all_items_is_opened_once(source: str, opened: str | None) -> None:
    site = replace(SITE, source=source)
    slow = replace(
        step(main_process("dataset", 0.5), use=ALONE, input=0.5, compute=0.5), lines=(at({"input": 0.05}, site),)
    )
    finding = next(each for each in causes(slow) if each.rule.name == "slow-dataset-item")
    text = finding_text(finding)
    assert finding.values["opened"] == opened
    assert text.fix.startswith("Open or load it once in each process" if opened else "Make items cheaper")
    init = "self.kept = None  # in __init__\nif self.kept is None:  # in __getitem__, once in each process\n"
    assert text.code == (f"{init}    self.kept = {opened}" if opened else "")


def test_making_a_batch_takes_longer_than_it_costs_where_the_device_or_a_core_is_busy() -> None:
    part, core = main_process("dataset", 0.5), {"input": 0.3, "core": 0.3, "compute": 0.4}
    assert "43% of each step goes to making batches: 50.0 ms each, waits for a core included." in evidence(
        step(part, use=ALONE, **core)
    )
    idle = IdleBlame(HostState.IN_REGION, "data", SiteOrigin.ITSELF, "input", SITE, 0.02, 0.2, 1.0)
    analysis = replace(step(part, use=ALONE, input=0.5, framework=0.5), idle=(idle,))
    sentence = "20% of each step the device is idle while batches are made, 50.0 ms each."
    assert sentence in evidence(analysis)


def evidence(analysis: Analysis) -> tuple[str, ...]:
    return finding_text(first(analysis)).evidence


def test_the_line_that_made_the_loader_is_named_where_it_is_certain() -> None:
    made = Site("train.py", 9, "main")
    train = LoaderSettings("DataLoader (train.py:9)", made, "train_loader", 0, 16, share=0.9)
    analysis = step(main_process("dataset", 0.5), use=replace(ALONE, loaders=(train,)), input=0.5, compute=0.5)
    assert first(analysis).sites == (made, SITE)
    assert finding_text(first(analysis)).code.startswith("train_loader = DataLoader(..., num_workers=3,")
    iterable = finding_text(
        first(replace(analysis, loader=replace(ALONE, loaders=(replace(train, is_iterable=True),))))
    )
    assert not iterable.code
    assert any("get_worker_info" in each for each in iterable.evidence), "workers may repeat its samples"
    assert not any("get_worker_info" in sentence for sentence in finding_text(first(analysis)).evidence)
    several = replace(analysis, loader=replace(ALONE, loaders=(replace(train, share=0.5),)))
    assert first(several).sites == (SITE,)
    assert finding_text(first(several)).code.startswith("DataLoader(..., num_workers=3,")


def test_more_batches_ahead_than_now() -> None:
    parts = (
        main_process("waiting for the workers", 0.5),
        worker("waiting for an index", 0.6),
        worker("dataset", 0.4),
    )
    ahead = LoaderSettings("DataLoader (train.py:9)", SITE, "train_loader", 2, 16, 16, share=1.0)
    analysis = step(*parts, use=replace(BUSY, loaders=(ahead,)), input=0.5, compute=0.5)
    assert finding_text(first(analysis)).code == "train_loader = DataLoader(..., prefetch_factor=32)"


def test_items_that_wait_need_no_cores() -> None:
    """A dataset that waits for files 80% of the time can have more workers than there are cores."""
    analysis = with_facts(step(main_process("dataset", 0.9), use=ALONE, input=0.9, compute=0.1), cores=2)
    assert found(analysis) == ["slow-dataset-item", "no-workers*"]
    main = ThreadActivity(7, 7, "p", "", ThreadState.MAKING_DATA, 0.9, 0.9, 0.9, 90, None, "", 0.2, None)
    waiting = replace(analysis, threads=(main,))
    assert found(waiting) == ["no-workers"], "they are no slower to make"
    assert first(waiting).values["workers"] == 9
    importing = replace(analysis, threads=(replace(main, on_cpu=0.6),))
    assert found(importing) == ["slow-dataset-item", "no-workers*"]
    assert found(with_measures(importing, host_cpu=0.2)) == ["no-workers"], "most of the time on a CPU was imports"
    restarted = replace(waiting, loader=LoaderUse(1.0, 1.0, 0))
    assert found(restarted) == ["slow-dataset-item"], (
        "workers that start for each batch do not wait beside the training"
    )
    assert first(waiting).gain == pytest.approx(0.1 / 0.011)


def test_items_that_wait_get_their_share_of_busy_cores() -> None:
    """The program runs half of the time in which it is ready to, on two cores that other programs keep busy."""
    use = replace(BUSY, worker_cpu=0.1, worker_core_wait=0.1, free_cores=0.0)
    parts = worker("dataset", 1.0), main_process("waiting for the workers", 0.8)
    analysis = step(*parts, use=use, input=0.8, compute=0.1, core=0.1)
    crowded = with_measures(with_facts(analysis, cores=2), host_cpu=0.1, children_cpu=0.1)
    assert found(crowded) == ["too-few-workers", "noisy-machine", "slow-dataset-item*"]
    assert first(crowded).gain == pytest.approx(0.9 / (0.2 * 0.9)), "0.2 cores are used now, and 1 can be had"
    assert found(with_measures(crowded, host_cpu=0.9, children_cpu=0.1))[0] == "slow-dataset-item", "none can be had"


def test_needless_workers_take_cores_too() -> None:
    parts = worker("waiting for an index", 0.9), worker("dataset", 0.1), main_process("receive", 0.5)
    use = replace(BUSY, worker_core_wait=0.0)
    analysis = step(*parts, use=use, input=0.5, core=0.2, compute=0.3)
    assert found(analysis) == ["needless-workers", "noisy-machine"]
    assert found(with_facts(analysis, cores=2)) == ["needless-workers"]
    assert first(with_facts(analysis, cores=2)).share == pytest.approx(0.6), "less 0.1 in which batches are made"
    # workers that wait for a core seem to take longer for a batch than the training process would
    parts = worker("waiting for an index", 0.4), worker("dataset", 0.6), main_process("receive", 0.5)
    waiting = replace(use, worker_cpu=0.12, worker_core_wait=0.48)
    crowded = step(*parts, use=waiting, input=0.5, core=0.2, compute=0.3)
    assert first(with_facts(crowded, cores=2)).share == pytest.approx(0.58), "less 0.12, of 0.6 that was not waiting"


def test_few_cores_make_the_item_the_cause() -> None:
    """One worker makes the batches hardly faster than the training process does."""
    analysis = with_facts(step(main_process("dataset", 0.86), use=ALONE, input=0.86, compute=0.14), cores=2)
    assert found(analysis) == ["slow-dataset-item", "no-workers*"]


def test_workers_need_free_cores_and_time_to_send_batches() -> None:
    """One more core gives twice the time of both at most; none that is free gives nothing."""

    def loading(share: float, free: float, cores: int = 4) -> Analysis:
        analysis = with_measures(
            step(main_process("dataset", share), use=replace(ALONE, free_cores=free), input=share, compute=1 - share),
            host_cpu=1.0,
        )
        return with_facts(analysis, cores=cores)

    assert found(loading(0.5, 3.0)) == ["no-workers", "slow-dataset-item*"]
    assert first(loading(0.5, 3.0)).gain == pytest.approx(0.1 / 0.051)
    assert gain_of("no-workers", loading(0.9, 0.5)) == pytest.approx(1.5 / 1.017), "1.5 cores do all work"
    assert found(loading(0.5, 0.05)) == ["slow-dataset-item"]
    text = replace(loading(0.5, 0.05), input=(main_process("tokenize", 0.5),))
    assert found(text) == ["inline-tokenization"]
    evidence = finding_text(first(loading(0.5, 0.05))).evidence
    assert any("On average, 0.05 cores were free." in sentence for sentence in evidence)
    evidence = finding_text(first(loading(0.5, 0.003))).evidence
    assert any("hardly any core was free" in sentence for sentence in evidence)
    assert not any("hardly help" in sentence for sentence in finding_text(first(loading(0.1, 3.0))).evidence)
    # a batch of 6.5 ms in a step of 7.2 ms: one worker needs as long to make and to send it
    parts = main_process("dataset", 0.9)
    mnist = step(replace(parts, seconds_per_step=0.0065), use=ALONE, input=0.9, compute=0.1)
    mnist = replace(
        mnist,
        measures={"step_time": Measure("step_time", 0.0072, "s")},
        breakdown={name: Measure(name, share * 0.0072, "s") for name, share in (("input", 0.9), ("compute", 0.1))},
    )
    assert found(with_facts(mnist, cores=2)) == ["slow-dataset-item"]


def test_each_start_of_a_loader_waits_for_the_first_batch() -> None:
    often = replace(ALONE, starts=0.5)
    analysis = step(main_process("dataset", 0.5), use=often, input=0.5, compute=0.5)
    assert gain_of("no-workers", analysis) == pytest.approx(0.1 / (0.051 + 0.5 * 0.0507))


def test_workers_that_sleep_take_no_cores_from_each_other() -> None:
    """Two workers that run 3% of the time, on two cores. Eight made the program 4.0 times as fast."""
    parts = main_process("waiting for the workers", 0.96), worker("dataset", 1.97)
    analysis = with_facts(step(*parts, use=SLEEPING, input=0.96, compute=0.04), cores=2)
    for core_wait in (0.0, None):
        use = replace(SLEEPING, worker_core_wait=core_wait, free_cores=1.8)
        sleeping = with_measures(replace(analysis, loader=use), host_cpu=0.04, children_cpu=0.06)
        assert found(sleeping)[0] == "too-few-workers"
        assert first(sleeping).values["needed"] > 8
        assert not any(
            "wait for a core" in sentence for each in causes(sleeping) for sentence in finding_text(each).evidence
        )
    # workers that compute need cores
    busy = replace(BUSY, worker_cpu=0.97, free_cores=0.0)
    computing = with_measures(replace(analysis, loader=busy), host_cpu=0.04, children_cpu=1.94)
    assert found(with_facts(computing, cores=4)) == ["slow-dataset-item"]


def test_a_cpu_quota_limits_what_waits_beside_each_other() -> None:
    """Of 100 ms, 80 are waits for files and 20 run on a core. With a quota of 0.25 cores that takes 80 ms at least."""
    parts = main_process("dataset", 0.8)
    use = replace(ALONE, free_cores=0.05, file_wait=0.9)
    waiting = with_measures(step(parts, use=use, input=0.8, compute=0.2, core=0.0), host_cpu=0.2, children_cpu=0.0)
    main = ThreadActivity(7, 7, "p", "", ThreadState.MAKING_DATA, 0.9, 0.9, 0.9, 90, None, "", 0.2, None)
    waiting = replace(waiting, threads=(main,))
    assert first(waiting).rule.name == "no-workers"
    assert first(waiting).gain > 3
    limited = replace(waiting, info=replace(waiting.info, host={"cores": 4, "cpu_quota": 0.25}))
    assert first(limited).gain == pytest.approx(100 / (80 + 4 * 1.7), rel=0.01), "a worker sends its batches, too"
    assert gain_of("io-bound-input", waiting) == pytest.approx(1 / 0.28)
    assert gain_of("io-bound-input", limited) == pytest.approx(100 / 80)


def test_needless_workers_cost_only_what_their_batches_cost_more() -> None:
    """Receiving takes 6.8% of a step, and making the batches would take most of that."""
    parts = worker("waiting for an index", 0.9), worker("dataset", 0.05), main_process("receive", 0.068)
    assert found(step(*parts, use=BUSY, input=0.068, compute=0.932)) == []
    dear = worker("waiting for an index", 0.9), worker("dataset", 0.05), main_process("receive", 0.2)
    assert found(step(*dear, use=BUSY, input=0.2, compute=0.8)) == ["needless-workers"]
    assert first(step(*dear, use=replace(BUSY, worker_core_wait=0.0), input=0.2, compute=0.8)).gain == pytest.approx(
        1 / 0.85
    )


def test_batches_that_wait_for_files_or_sockets() -> None:
    waiting = step(
        main_process("dataset", 0.5), use=replace(ALONE, file_wait=0.8, socket_wait=0.0), input=0.5, compute=0.5
    )
    assert found(waiting) == ["no-workers", "io-bound-input*"], "what is computed is not slow"
    assert gain_of("io-bound-input", waiting) == pytest.approx(1 / 0.6)
    crowded = with_measures(replace(waiting, loader=replace(ALONE, file_wait=0.8, free_cores=0.0)), host_cpu=1.0)
    assert found(crowded) == ["io-bound-input"]
    remote = replace(waiting, loader=replace(ALONE, file_wait=0.1, socket_wait=0.6))
    io_bound = next(each for each in causes(remote) if each.rule.name == "io-bound-input")
    assert io_bound.seconds == pytest.approx(0.035)
    computing = replace(waiting, loader=replace(ALONE, file_wait=0.4, socket_wait=0.0))
    assert found(computing) == ["no-workers", "slow-dataset-item*"]


TEXTS = LoaderSettings("DataLoader (train.py:9)", Site("train.py", 9, "main"), "texts", 0, 16, share=1.0)
PADDING = {"batches": 4, "padded_batches": 4, "elements": 1000, "padding": 600, "ids": [0]}


def padded(**changes: Any) -> Analysis:
    """A step of which 0.6 is computing in the passes through the model."""
    passes = tuple(Phase(name, 0.03, 0.3, 0.3, 0.3, SITE) for name in ("forward", "backward"))
    analysis = replace(step(compute=1.0), phases=passes, loader=replace(ALONE, loaders=(TEXTS,)))
    return with_facts(analysis, padding={TEXTS.name: PADDING | changes})


def test_batches_that_are_mostly_padding() -> None:
    assert found(padded()) == ["padding"]
    assert first(padded()).gain == pytest.approx(1 / 0.7), "half of the passes, with 20% of padding left"
    assert first(padded()).sites == (TEXTS.site,)
    pads = {"file": "train.py", "line": 4, "function": "collate"}
    assert first(padded(line=pads)).sites == (Site("train.py", 4, "collate"), TEXTS.site)
    assert first(padded()).confidence is Confidence.MEDIUM, "the ids of a few batches may mean something else"
    assert found(padded(padding=150)) == []
    assert found(padded(ids=[0, 7])) == [], "it may be no padding"
    assert found(padded(padded_batches=3)) == []
    assert found(padded(batches=2, padded_batches=2)) == []
    assert found(with_facts(padded(), packed_sequences=True)) == []
    assert found(replace(padded(), loader=ALONE)) == []
    on_device = replace(padded(), idle=(idle("python", 0.01),))
    finding = next(each for each in causes(on_device) if each.rule.name == "padding")
    assert (finding.gains, finding.is_of_run, finding.confidence) == ((), True, Confidence.MEDIUM)


def test_steps_that_do_not_depend_on_their_batch() -> None:
    curve = BatchCurve(8.0, 2.0, 0.1, 0.09, 0.08, 0.07, 0.09)
    small = replace(step(compute=1.0), batches=curve)
    assert found(small) == ["small-batch"]
    assert first(small).gain == pytest.approx(1 / 0.4), "three quarters of 0.08 of 0.1 s"
    assert "32" in finding_text(first(small)).code
    assert found(replace(small, batches=replace(curve, low=0.05))) == []
    assert found(replace(small, batches=None)) == []
    one = replace(step(compute=0.7, framework=0.3), batches=BatchCurve(8.0))
    assert [each.rule.name for each in find(one)[1]] == ["small-batch"]
    assert "8 items" in not_judged_text(find(one)[1][0])
    assert find(replace(small, batches=BatchCurve(8.0)))[1] == ()
    assert found(with_facts(small, device="cuda")) == []


def copies_of_a_model(below: LineCost) -> tuple[LibraryFunction, ...]:
    """The functions of a deep copy of a model at a line."""
    files = {"deepcopy": "copy.py", "Parameter.__deepcopy__": "torch/nn/parameter.py"}
    return tuple(LibraryFunction(file, name, below) for name, file in files.items())


def test_deep_copies_of_a_model_and_of_anything_else() -> None:
    shares = {"compute": 0.02, "python": 0.01}
    below = LineCost(SITE, "", 0.03, 0.3, 0.27, 0.33, 200, shares)
    copies, model = copies_of_a_model(below)
    after = Phase(AFTER_OPTIMIZER, 0.03, 0.3, 0.27, 0.33, SITE, SITE.function, shares)
    analysis = replace(step(compute=0.8, python=0.2), library=(copies, model), lines=(below,), phases=(after,))
    assert found(analysis) == ["deep-copies", "python-loop"], "what follows the update is no second cause"
    assert first(analysis).gain == pytest.approx(1 / 0.7)
    assert finding_text(first(analysis)).code == "copied.load_state_dict(model.state_dict())"
    assert finding_text(first(replace(analysis, library=(copies,)))).code == ""
    named = replace(below, site=replace(SITE, source="self.best = copy.deepcopy(net)  # the best so far"))
    copies, model = replace(copies, below=named), replace(model, below=replace(named, categories={"compute": 0.02}))
    text = finding_text(first(replace(analysis, library=(copies, model), lines=(named,))))
    assert text.code == "self.best.load_state_dict(net.state_dict())"
    assert "deep-copies" not in found(replace(analysis, library=()))


def test_deep_copies_are_told_once() -> None:
    """What they compute is no Python loop, and their operators are no small ones of the program."""
    below = LineCost(SITE, "", 0.03, 0.3, 0.27, 0.33, 200, {"compute": 0.012, "python": 0.018})
    line = replace(below, is_outside_torch=True)
    analysis = replace(step(compute=0.7, python=0.3), lines=(line,))
    assert found(analysis) == ["python-loop"]
    assert first(analysis).costs["compute"] == pytest.approx(0.012)
    copying = replace(analysis, library=copies_of_a_model(below))
    assert found(copying) == ["deep-copies", "python-loop"]
    assert [each.costs.get("compute") for each in causes(copying)] == [pytest.approx(0.012), None]
    small = OperatorLine(SITE, False, "", 5000.0, 0.012, 5000.0, 0.012)
    calling = replace(step(compute=1.0), lines=(replace(below, categories={"compute": 0.03}),), operators=(small,))
    assert found(calling) == ["many-small-operators"]
    assert found(replace(calling, library=copies_of_a_model(calling.lines[0]))) == ["deep-copies"]
    above = replace(calling.lines[0], site=Site("train.py", 50, "main"))
    within = tuple(replace(each, lines=(SITE,)) for each in copies_of_a_model(above))
    assert found(replace(calling, library=within)) == ["deep-copies"], "those of a __deepcopy__ belong to the copy"


def test_a_line_that_starts_a_program_and_waits_for_it_is_one_cause() -> None:
    shares = {"waiting": 0.03, "compute": 0.02}
    line = LineCost(SITE, "", 0.05, 0.5, 0.45, 0.55, 200, shares, is_outside_torch=True)
    after = Phase(AFTER_OPTIMIZER, 0.05, 0.5, 0.45, 0.55, SITE, SITE.function, shares)
    read = CallSite(SITE, "might_sync", 1.0, 1e-4, 0.0, 0.0, "item")
    analysis = replace(step(waiting=0.3, compute=0.7), lines=(line,), phases=(after,), call_sites=(read,))
    assert found(analysis) == ["blocked-thread"]
    assert first(analysis).gain == pytest.approx(2.0)
    computing = replace(line, categories={"waiting": 0.01, "compute": 0.04})
    assert first(replace(analysis, lines=(computing,), phases=())).costs == pytest.approx({"waiting": 0.03})
    # the clocks show that half of what samples call a wait was none
    assert first(replace(analysis, blocked=0.015)).costs == pytest.approx({"waiting": 0.015, "compute": 0.01})


def test_small_operators_after_the_update_are_told_once() -> None:
    """Such as those of an average of the parameters."""
    line = LineCost(SITE, "", 0.04, 0.4, 0.36, 0.44, 200, {"compute": 0.04})
    after = Phase(AFTER_OPTIMIZER, 0.04, 0.4, 0.36, 0.44, SITE, SITE.function, {"compute": 0.04})
    small = OperatorLine(SITE, False, "", 8000.0, 0.01, 8000.0, 0.01)
    analysis = replace(step(compute=1.0), lines=(line,), phases=(after,))
    assert found(replace(analysis, operators=(small,))) == ["many-small-operators"]
    assert found(analysis) == ["work-after-update"]


def test_texts_of_tensors_are_logging() -> None:
    """An f-string makes the text of a tensor even where the level of its message is off."""
    below = LineCost(SITE, "", 0.03, 0.3, 0.27, 0.33, 200, {"log": 0.03})
    texts = LibraryFunction("torch/_tensor_str.py", "_str", below)
    shown = first(replace(step(log=0.4, compute=0.6), library=(texts,)))
    assert shown.rule.name == "logging-in-loop"
    assert "30% of each step makes texts of tensors" in " ".join(finding_text(shown).evidence)
    assert "texts" not in " ".join(finding_text(first(step(log=0.4, compute=0.6))).evidence)


@pytest.mark.parametrize(
    ("source", "call"),
    [
        ('self.logger.debug(f"step {step}: {gradients}")', 'self.logger.debug("%s", x)'),
        ('logger.debug("step %d: %s", step, gradients)', ""),
        ('print(f"step {step}: {gradients}")', ""),
        ('logger.debug(f"step {step}: {gradients}",', ""),
    ],
)
def test_a_message_that_may_not_be_shown_needs_no_text(source: str, call: str) -> None:
    line = LineCost(replace(SITE, source=source), "", 0.04, 0.4, 0.36, 0.44, 200, {"log": 0.04})
    fix = finding_text(first(replace(step(log=0.4, compute=0.6), lines=(line,)))).fix
    assert ("isEnabledFor" in fix) == bool(call)
    assert call in fix


def test_validation_after_the_update() -> None:
    phase = Phase(AFTER_OPTIMIZER, 0.04, 0.4, 0.4, 0.4, SITE, "validate", {"compute": 0.04})
    analysis = replace(step(compute=1.0), phases=(phase,))
    assert found(analysis) == ["work-after-update"]
    assert finding_text(first(analysis)).fix == "Run validate() less often, in evaluation mode and without gradients."
    in_mode = replace(analysis, phases=(phase, Phase(Stage.EVALUATION, 0.001, 0.01, 0.01, 0.01)))
    assert finding_text(first(in_mode)).fix == "Run validate() less often.", "a model is in evaluation mode already"
    unknown = replace(analysis, phases=(replace(phase, calls=""),))
    assert "If it is a validation" in finding_text(first(unknown)).fix
    # only one rule reports the work that every 25th step does at that line
    spikes = Spikes(4, 100, 25, 80.0, 0.4, (SpikeLine(SITE, 1.0, "validate"),), 60, enough=True)
    line = LineCost(SITE, "", 0.04, 0.4, 0.4, 0.4, 100, {"compute": 0.04})
    analysis = replace(analysis, lines=(line, replace(line, site=replace(SITE, line=99))))
    assert found(replace(analysis, spikes=spikes)) == ["periodic-work"]
    assert found(replace(analysis, spikes=replace(spikes, stage=Stage.NO_GRADIENTS))) == ["periodic-work"]
    for others in (
        replace(spikes, lines=(SpikeLine(replace(SITE, line=99), 1.0, "f"),)),
        replace(spikes, stage="checkpoint"),
        replace(spikes, share=0.11),
    ):
        assert "work-after-update" in found(replace(analysis, spikes=others))
    loop = replace(step(python=0.4, compute=0.6), phases=(replace(phase, categories={"python": 0.04}),))
    assert found(loop) == ["python-loop"]


def test_histograms_after_the_update_whose_values_the_host_reads() -> None:
    """Averages of parameters may be needed in each step; what is only looked at is not."""
    phase = Phase(AFTER_OPTIMIZER, 0.04, 0.4, 0.4, 0.4, SITE, "write", {"compute": 0.03, "python": 0.01})
    histogram, average = (replace(SITE, line=line, function="write") for line in (5, 6))
    lines = tuple(
        LineCost(site, "", seconds, 10 * seconds, 9 * seconds, 11 * seconds, 200, {"compute": seconds})
        for site, seconds in ((histogram, 0.02), (average, 0.01))
    )
    reads = CallSite(replace(histogram, file=f"/home/{histogram.file}"), "might_sync", 38.0, 1e-4, 0.0, 0.0, "tolist")
    analysis = replace(step(compute=0.9, python=0.1), phases=(phase,), lines=lines, call_sites=(reads,))
    assert found(analysis) == ["work-after-update"], "Python after the update belongs to it"
    assert first(analysis).gain == pytest.approx(1 / 0.6)
    assert "38 results" in " ".join(finding_text(first(analysis)).evidence)
    looping = step(compute=0.7, python=0.3)
    loop = replace(phase, categories={"compute": 0.01, "python": 0.03})
    looping = replace(analysis, breakdown=looping.breakdown, phases=(loop,), lines=(*lines, at({"python": 0.03})))
    assert found(looping) == ["python-loop"]
    of_loss = replace(analysis, call_sites=(replace(reads, site=average),))
    assert all(not finding.gains for finding in causes(of_loss) if finding.rule.name == "work-after-update")
    elsewhere = replace(analysis, lines=tuple(replace(line, site=replace(line.site, function="f")) for line in lines))
    assert first(elsewhere).rule.name != "work-after-update" or not first(elsewhere).gains
    # the host reads at the next line what one computes
    sources = replace(average, source="print(bins.tolist())"), replace(histogram, source="bins = x.histc(9)")
    told = replace(
        of_loss,
        call_sites=(replace(reads, site=replace(sources[0], line=7)),),
        lines=(replace(lines[0], site=sources[1]), lines[1]),
    )
    assert first(told).rule.name == "work-after-update"
    assert first(told).gains
    # what a line adds to is needed in the next step, and what is read before is not what it computes
    adding = replace(told, lines=(replace(told.lines[0], site=replace(sources[1], source="bins = bins + x")), lines[1]))
    before = replace(told, call_sites=(replace(reads, site=replace(sources[0], line=4)),))
    # NumPy computes a metric of what the host reads; what it computes of nothing that is read may be needed
    numpy = replace(lines[0], is_outside_torch=True, site=replace(histogram, source="f(x)"))
    metric = replace(of_loss, lines=(numpy, lines[1]))
    assert first(metric).gains
    unread = replace(metric, call_sites=())
    for needed in (adding, before, unread):
        assert all(not finding.gains for finding in causes(needed) if finding.rule.name == "work-after-update")


def test_extra_work_of_every_25th_step() -> None:
    spikes = Spikes(4, 100, 25, 80.0, 0.75, (SpikeLine(SITE, 1.0, "evaluate"),), 60, enough=True)
    analysis = replace(step(python=0.6, waiting=0.3, compute=0.1), spikes=spikes)
    assert found(analysis)[0] == "periodic-work"
    assert first(analysis).gain == pytest.approx(4.0)
    assert "evaluate() less often, or on less data, in evaluation mode" in finding_text(first(analysis)).fix
    retrieving = replace(analysis, spikes=replace(spikes, lines=(SpikeLine(SITE, 1.0, "retrieval"),)))
    assert finding_text(first(retrieving)).fix == "Run retrieval() less often, or on less data."
    # what a specific rule claims of the extra time is not claimed again
    writing = step(checkpoint=0.2, compute=0.8)
    saved = replace(spikes, share=0.2, categories={"checkpoint": 0.9, "compute": 0.1})
    assert found(replace(writing, spikes=saved)) == ["synchronous-checkpoint"]
    mostly = replace(saved, share=0.3, categories={"checkpoint": 0.6, "compute": 0.4})
    assert found(replace(writing, spikes=mostly)) == ["synchronous-checkpoint", "periodic-work"], "what is left of it"
    loading = step(main_process("dataset", 0.2), use=LoaderUse(100.0, 0.0), input=0.2, compute=0.8)
    validating = replace(saved, share=0.3, categories={"input": 0.7, "compute": 0.3})
    assert found(replace(loading, spikes=validating))[0] == "periodic-work", "its loader is a part of that work"
    other = replace(writing, spikes=replace(saved, categories={"compute": 1.0}))
    assert set(found(other)) == {"periodic-work", "synchronous-checkpoint"}
    assert found(replace(analysis, spikes=replace(spikes, stage="checkpoint"))) == ["python-loop", "blocked-thread"]
    assert found(replace(analysis, spikes=replace(spikes, share=0.05))) == ["python-loop", "blocked-thread"]


def test_waits_for_a_core_are_no_extra_work_of_long_steps() -> None:
    """On a busy machine the extra time waits for a core as often as the rest of the step does."""
    busy = step(core=0.8, compute=0.18, python=0.02)
    spikes = Spikes(4, 100, 8, 3.0, 0.25, (SpikeLine(SITE, 1.0, "evaluate"),), 60, enough=True)
    assert gain_of("periodic-work", replace(busy, spikes=spikes)) == pytest.approx(1 / 0.75)
    sampled = replace(spikes, categories={"core": 0.8, "compute": 0.2})
    assert gain_of("periodic-work", replace(busy, spikes=sampled)) == pytest.approx(1 / 0.75)
    writing = step(core=0.8, checkpoint=0.01, compute=0.19)
    saved = replace(sampled, stage="checkpoint")
    assert gain_of("synchronous-checkpoint", replace(writing, spikes=saved)) == pytest.approx(1 / 0.75)


def test_what_a_function_does_besides_writing_a_checkpoint() -> None:
    """Such as flushing the file to the disk."""
    spikes = Spikes(4, 100, 25, 80.0, 0.5, (SpikeLine(SITE, 1.0, SITE.function),), 60, enough=True)
    analysis = replace(step(checkpoint=0.2, waiting=0.25, compute=0.55), spikes=spikes)
    assert found(analysis) == ["synchronous-checkpoint"]
    assert first(analysis).costs == pytest.approx({"checkpoint": 0.02, "waiting": 0.025, "compute": 0.005})
    evaluating = replace(SITE, line=30, function="evaluate")
    lines = at({"checkpoint": 0.02}), at({"waiting": 0.025, "compute": 0.055}, evaluating)
    at_other = replace(spikes, lines=(SpikeLine(evaluating, 1.0, "evaluate"),))
    other = replace(analysis, spikes=at_other, lines=lines)
    assert found(other)[0] == "periodic-work", "the checkpoint is no part of that"
    lines = at({"checkpoint": 0.01}), at({"compute": 0.09}, evaluating)
    mostly_other = replace(step(checkpoint=0.1, compute=0.9), spikes=replace(spikes, lines=at_other.lines), lines=lines)
    assert found(mostly_other)[0] == "periodic-work"
    # recorded times tell what the long steps do, though too few samples tell a line
    recorded = replace(analysis, spikes=replace(spikes, stage="checkpoint", lines=()))
    assert first(recorded).costs == first(analysis).costs


def test_what_steps_with_a_stage_take_more_is_its_cost() -> None:
    """A checkpoint is more than its recorded writing: the next operators find cold caches."""
    writing = step(checkpoint=0.2, compute=0.6, python=0.2)

    def costs(low: float, seconds: float, stage: Stage = Stage.CHECKPOINT) -> dict[str, float]:
        measured = {stage: StageCost(seconds, low, 2 * seconds - low)}
        findings, *_ = find(replace(writing, stage_costs=measured))
        return dict(next(each.costs for each in findings if each.rule.name == "synchronous-checkpoint"))

    assert costs(0.025, 0.028) == pytest.approx({"checkpoint": 0.02, "compute": 0.006, "python": 0.002})
    assert costs(0.019, 0.028) == pytest.approx({"checkpoint": 0.02}), "it may be chance"
    assert costs(0.045, 0.05) == pytest.approx({"checkpoint": 0.02}), "such steps do other work, too"
    assert costs(0.025, 0.028, Stage.EVALUATION) == pytest.approx({"checkpoint": 0.02})
    phase = Phase(Stage.EVALUATION, 0.04, 0.4, 0.4, 0.4, SITE, categories={"compute": 0.04})
    evaluating = replace(
        step(compute=1.0), phases=(phase,), stage_costs={Stage.EVALUATION: StageCost(0.05, 0.045, 0.055)}
    )
    assert first(evaluating).seconds == pytest.approx(0.05)


def test_a_thread_waits_no_longer_than_its_clocks_show() -> None:
    waiting = step(waiting=0.6, compute=0.4)
    assert first(waiting).seconds == pytest.approx(0.06)
    assert first(replace(waiting, blocked=0.05)).seconds == pytest.approx(0.05)
    assert first(replace(waiting, blocked=0.08)).seconds == pytest.approx(0.06), "a part of it is in other categories"
    assert first(waiting).gains[0].is_least, "after a wait, caches are cold"


def test_a_checkpoint_that_waits_for_the_disk() -> None:
    """Writing the file, and the rename that follows it in the same function, are one cause."""
    line = LineCost(SITE, "fsync", 0.02, 0.2, 0.18, 0.22, 200, {"waiting": 0.02})
    writes = at({"checkpoint": 0.01})
    analysis = replace(step(checkpoint=0.1, waiting=0.2, compute=0.7), lines=(line, writes))
    assert found(analysis) == ["synchronous-checkpoint"]
    assert first(analysis).share == pytest.approx(0.3)
    elsewhere = replace(line, site=replace(SITE, line=40, function="wait"))
    assert found(replace(analysis, lines=(elsewhere, writes))) == ["blocked-thread", "synchronous-checkpoint"]
    # where writing takes little time, its line has no place among those of the step
    little = replace(step(checkpoint=0.02, waiting=0.2, compute=0.78), lines=())
    writes = replace(line, site=replace(SITE, line=12), categories={"checkpoint": 0.002})
    assert found(replace(little, lines=(line, writes))) == ["synchronous-checkpoint"]
    flushing = replace(line, site=replace(SITE, line=15, source="stream.flush(), os.fsync(stream.fileno())"))
    assert first(replace(analysis, lines=(flushing, at({"checkpoint": 0.01})))).sites == (SITE, flushing.site)
    both = replace(analysis, lines=(line, at({"checkpoint": 0.01}), replace(elsewhere, categories={"waiting": 0.005})))
    assert first(both).costs == pytest.approx({"checkpoint": 0.01, "waiting": 0.016})


def test_a_checkpoint_that_is_written_by_hand() -> None:
    """With pickle or NumPy, of which no hook tells; the waits beside it until it is on the disk are a part of it."""
    dump, flush, sleep = (
        Site("train.py", number, function, source)
        for number, function, source in (
            (20, "save", "pickle.dump(state, file)"),
            (21, "save", "os.fsync(file.fileno())"),
            (30, "train", "time.sleep(0.01)"),
        )
    )
    lines = tuple(
        LineCost(site, "", 0.01, 0.1, 0.09, 0.11, 200, {name: 0.01}, is_outside_torch=True)
        for site, name in ((dump, "compute"), (flush, "waiting"), (sleep, "waiting"))
    )
    analysis = replace(step(waiting=0.2, compute=0.8), lines=lines)
    assert found(analysis) == ["synchronous-checkpoint", "blocked-thread"]
    written, blocked = causes(analysis)
    assert written.costs == pytest.approx({"waiting": 0.01, "compute": 0.01})
    assert written.sites == (dump, flush)
    assert blocked.costs == pytest.approx({"waiting": 0.01})
    reading = replace(lines[0], site=replace(dump, source="state = pickle.load(file)"))
    assert found(replace(analysis, lines=(reading, *lines[1:]))) == ["blocked-thread"]
    model = replace(lines[0], is_outside_torch=False, categories={"compute": 0.01})
    assert found(replace(analysis, lines=(model, lines[2]))) == ["blocked-thread"], "the model may compute there"


def test_the_lines_of_a_blocked_thread_are_all_named() -> None:
    """Where three lines of a function wait alike, its location has only one of them."""
    sites = [replace(SITE, line=number) for number in (14, 15, 16)]
    lines = tuple(LineCost(site, "", 0.01, 0.1, 0.09, 0.11, 100, {"waiting": 0.01}) for site in sites)
    assert first(replace(step(waiting=0.3, compute=0.7), lines=lines)).sites == tuple(sites)


def test_ranks_that_gather_metrics_after_each_update() -> None:
    after = Phase(AFTER_OPTIMIZER, 0.04, 0.4, 0.36, 0.44, SITE, "gather", {"ranks": 0.03, "compute": 0.01})
    backward = Phase("backward", 0.3, 0.3, 0.3, 0.3, replace(SITE, line=9))
    ledger = RankLedger((), 0, synchronous=True)
    analysis = replace(step(ranks=0.4, compute=0.6), phases=(backward, after), ranks=ledger)
    assert found(analysis) == ["exchange-after-update"]
    assert first(analysis).share == pytest.approx(0.3), "without the exchange of gradients, and the computing"
    assert first(analysis).sites == (SITE,)
    forward = at({"ranks": 0.024}, replace(SITE, line=5, function="forward"))
    gather = at({"ranks": 0.012}, replace(SITE, line=3, function="gather"))
    elsewhere = replace(analysis, lines=(forward, gather))
    assert first(elsewhere).sites == (replace(SITE, line=3, function="gather"),), "it does not wait for statistics"
    assert first(replace(analysis, lines=(forward,))).sites == (SITE,)
    computing = replace(after, categories={"compute": 0.04})
    assert found(replace(analysis, phases=(backward, computing))) == ["work-after-update"]
    assert found(replace(analysis, phases=(replace(backward, site=SITE), after))) == [], "it may be that of gradients"
    assert found(replace(analysis, ranks=None)) == []


def test_as_many_workers_as_help() -> None:
    """Items that wait can be made by more workers than there are cores."""
    parts = WAITS, worker("dataset", 2.9)
    finding = first(step(*parts, use=replace(SLEEPING, workers=3), input=0.6, compute=0.4))
    assert finding.values["needed"] == 8, "0.29 s of work for each 0.04 s of computing"
    assert finding.gain == pytest.approx(2.5)


def test_evaluation_is_time_of_its_categories() -> None:
    phase = Phase(Stage.EVALUATION, 0.04, 0.4, 0.4, 0.4, SITE, categories={"compute": 0.03, "python": 0.01})
    analysis = replace(step(compute=0.7, python=0.3), phases=(phase,))
    assert found(analysis) == ["frequent-evaluation", "python-loop"]
    shares = {finding.rule.name: finding.share for finding in causes(analysis)}
    assert shares == {"frequent-evaluation": pytest.approx(0.4), "python-loop": pytest.approx(0.2)}
    rare = replace(phase, seconds_per_step=0.004, share=0.04, low=0.04, high=0.04)
    assert found(replace(analysis, phases=(rare,))) == ["python-loop"]


def test_lines_of_the_program_come_before_those_of_a_library_that_runs_its_evaluation() -> None:
    library = Site("/env/lib/python3.11/site-packages/lightning/loops/loop.py", 154, "run")
    further = (SITE,)
    phase = Phase(Stage.EVALUATION, 0.04, 0.4, 0.4, 0.4, library, categories={"compute": 0.04}, further=further)
    assert first(replace(step(compute=1.0), phases=(phase,))).sites == (SITE, library)


def test_the_straggler_is_named_on_every_rank() -> None:
    straggler = Straggler(1, 0.05, "input", 0.06, 0.01, SITE)
    pair = tuple(RankActivity(rank, rank, 9, 0, 1.0, None, None) for rank in (0, 1))
    ledger = RankLedger((), 0, synchronous=True, straggler=straggler)
    waiting = replace(step(compute=0.5, ranks=0.5), ranks=ledger)
    assert found(waiting) == ["straggling-rank"]
    assert finding_text(first(waiting)).title == "Rank 1 makes the training wait"
    itself = replace(step(compute=0.4, input=0.6), ranks=replace(ledger, analysed=1))
    assert found(itself)[0] == "straggling-rank"
    delayed = replace(itself, ranks=replace(ledger, analysed=1, straggler=replace(straggler, core=0.02)))
    assert first(itself).gain == pytest.approx(2.0)
    assert first(delayed).gain == pytest.approx(1 / 0.7), "its waits for a core are no work"
    crowded = replace(straggler, core=0.048, cpu=0.03)
    few_cores = replace(itself, ranks=replace(ledger, analysed=1, straggler=crowded))
    assert first(few_cores).gain == pytest.approx(1 / 0.7), "the CPU time of its work is no wait for a core"
    shares = replace(ledger, analysed=1, ranks=pair, straggler=replace(straggler, lead=0.03))
    busy = replace(step(compute=0.2, input=0.3, core=0.5), ranks=shares)
    assert first(busy).gain == pytest.approx(1 / 0.4)
    assert first(busy).values["shared"] == pytest.approx(1 / 0.7), "as of the gain, waits for a core are left out"
    works, *_, waits, _ = finding_text(first(delayed)).evidence
    assert works == "It works 30.0 ms per step longer than the other ranks.", "the amount that its share is of"
    assert waits.startswith("It also waits 20.0 ms per step longer for a free core")
    assert "free core" not in " ".join(finding_text(first(itself)).evidence)
    both = replace(straggler, category="compute", seconds=0.06, others=0.02)
    unequal = replace(step(compute=1.0), ranks=replace(ledger, analysed=1, ranks=pair, straggler=both))
    assert first(unequal).gain == pytest.approx(1 / 0.75), "both ranks then have half of what one works longer"
    assert not first(unequal).gains[0].is_most
    assert any("Leaving it out gives 2" in text for text in finding_text(first(unequal)).evidence)
    special = replace(unequal, ranks=replace(ledger, analysed=1, ranks=pair, straggler=replace(both, alone=True)))
    assert (first(special).gain, first(special).gains[0].is_most) == (pytest.approx(2.0), True)
    assert found(replace(waiting, ranks=replace(ledger, straggler=None))) == []
    works, *_, spends, _ = finding_text(first(replace(waiting, ranks=replace(ledger, ranks=pair)))).evidence
    assert works.endswith("longer than the other rank.")
    assert spends.endswith(", the other rank 10.0 ms.")


def test_threads_cause_no_longer_waits_than_they_run() -> None:
    waits = with_facts(step(core=0.8, compute=0.2), torch_threads=16)
    assert first(waits).gain == pytest.approx(5.0), "how long the other threads run is not known"
    busy = {name: Measure(name, cores, "cores") for name, cores in (("host_cpu", 0.3), ("children_cpu", 0.1))}
    most = replace(waits, measures={**waits.measures, **busy})
    assert found(most) == ["more-threads-than-cores", "noisy-machine"]
    assert first(most).gain == pytest.approx(2.0), "other programs are what it waits for the rest of the time"
    assert first(most).share == pytest.approx(0.5), "of a step without the waits that others cause"
    busy = {name: Measure(name, cores, "cores") for name, cores in (("host_cpu", 0.3), ("children_cpu", 0.3))}
    loading = step(
        main_process("waiting for the workers", 0.3), worker("dataset", 0.9), core=0.4, input=0.3, compute=0.3
    )
    analysis = with_facts(replace(loading, measures={**loading.measures, **busy}), torch_threads=16)
    claim = next(each for each in causes(analysis) if each.rule.name == "more-threads-than-cores")
    assert claim.seconds == pytest.approx(0.03), "a wait for workers needs no core, so that others run longer"


def test_the_thread_that_holds_the_gil_is_named() -> None:
    main = ThreadActivity(7, 7, "p", "", ThreadState.GIL, 0.3, 0.3, 0.3, 90, None, "", 0.7, 0.5)
    holder = replace(main, tid=8, thread="worker", state=ThreadState.PYTHON, share=0.9, gil=0.6, site=SITE)
    analysis = replace(step(gil=0.3, compute=0.7), threads=(main, holder))
    assert first(analysis).values["held"] == 0.6
    assert first(analysis).sites[0] == SITE
    # a loop of two lines, which in part waited for a core
    lines = tuple(
        LineCost(Site("train.py", number, "poll"), "", 0.0, share, share, share, 50, {ThreadState.CORE: 0.1})
        for number, share in ((63, 0.5), (62, 0.45))
    )
    split = replace(analysis, threads=(main, replace(holder, share=0.45, site=lines[1].site, lines=lines)))
    assert first(split).sites[0] == lines[0].site
    assert first(split).gains[0].is_least, "the rest waits less for a core, too"
    # no code of the program runs in it
    started = with_facts(analysis, setting_lines={"thread 8": {"file": "train.py", "line": 70, "function": "main"}})
    of_library = replace(holder, site=Site("/usr/lib/python3.11/threading.py", 1002, "Thread._bootstrap"))
    watched = first(replace(started, threads=(main, of_library)))
    assert [site.line for site in watched.sites] == [70]
    assert "It was started at train.py:70." in finding_text(watched).evidence
    # between its work, it waits in the same function for more of it
    waits = LineCost(Site("train.py", 61, "poll"), "", 0.0, 0.7, 0.7, 0.7, 70, {ThreadState.LOCK: 0.7})
    fed = replace(
        holder,
        site=waits.site,
        states=((ThreadState.LOCK, 0.7), (ThreadState.PYTHON, 0.3)),
        lines=(waits, *(replace(line, share=0.1 + 0.01 * line.share) for line in lines)),
    )
    assert first(replace(analysis, threads=(main, fed))).sites[0] == lines[0].site


def test_a_librarys_thread_that_holds_the_gil_has_the_advice_of_what_it_runs() -> None:
    main = ThreadActivity(7, 7, "p", "", ThreadState.GIL, 0.3, 0.3, 0.3, 90, None, "", 0.7, 0.5)
    holder = replace(main, tid=8, state=ThreadState.PYTHON, share=0.9, gil=0.6, site=SITE, calls="psutil._linux.read")
    polling = replace(holder, runs="transformers.trainer_utils.TrainerMemoryTracker.peak_monitor_func")
    line = {"file": "train.py", "line": 3, "function": "main"}
    analysis = with_facts(step(gil=0.3, compute=0.7), setting_lines={"TrainingArguments": line})
    known, other = (first(replace(analysis, threads=(main, each))) for each in (polling, holder))
    assert "skip_memory_metrics" in finding_text(known).fix
    assert (
        "It runs transformers.trainer_utils.TrainerMemoryTracker.peak_monitor_func()." in finding_text(known).evidence
    )
    assert known.cure_site == Site("train.py", 3, "main")
    assert finding_text(other).fix.startswith("Move the work of that thread")
    assert other.cure_site is None


def test_python_may_be_a_wait_for_the_device() -> None:
    analysis = with_facts(step(python=0.5, compute=0.5), device="cuda")
    findings, not_judged, _ = find(analysis)
    assert not any(finding.has_cure for finding in findings)
    assert [rule.rule.name for rule in not_judged] == ["python-loop"]


def device_step(*rows: IdleBlame, calls: float = 1.0, kind: str = "sync", operation: str = "item") -> Analysis:
    """A step of 100 ms of a device with a queue, idle in these rows, with calls at one line."""
    site = CallSite(SITE, kind, calls, 0.02, 0.01, 8.0, operation)
    return replace(step(compute=1.0), idle=rows, call_sites=(site,))


def idle(category: str, share: float, site: Site | None = SITE) -> IdleBlame:
    return IdleBlame(HostState.AFTER_SYNC, "sync", SiteOrigin.ITSELF, category, site, 0.1 * share, share, 1.0)


@pytest.mark.parametrize(
    ("analysis", "expected"),
    [
        (device_step(idle("sync", 0.3)), "hidden-sync"),
        (device_step(idle("sync", 0.3), calls=900), "per-element-reads"),
        (device_step(idle("copy", 0.3), calls=900, kind="d2h"), "per-element-reads"),
        (device_step(idle("sync", 0.3), operation="event synchronize"), "left-over-synchronize"),
        (device_step(idle("sync", 0.3), operation="empty_cache"), "empty-cache"),
        (device_step(idle("sync", 0.3), operation="mask index"), "shape-from-values"),
        (device_step(idle("sync", 0.3), calls=900, operation="nonzero"), "shape-from-values"),
        (device_step(idle("copy", 0.3), calls=900, kind="h2d"), "tiny-copies"),
        (device_step(idle("copy", 0.3), calls=2, kind="h2d"), ""),
        (device_step(idle("sync", 0.3, Site("b.py", 3, "f")), calls=900), ""),
        (device_step(idle("sync", 0.03)), ""),
    ],
)
def test_reads_of_a_device_cost_what_it_is_idle_for(analysis: Analysis, expected: str) -> None:
    assert found(analysis) == expected.split()


@pytest.mark.parametrize(
    ("source", "instead"),
    [
        ("noise = torch.randn(n, 8).to(device)", "torch.randn(n, 8, device=device)"),
        (
            "mask = torch.ones(4, dtype=torch.bool).cuda(non_blocking=True)",
            "torch.ones(4, dtype=torch.bool, device='cuda')",
        ),
        ("x = x + torch.zeros(4).to(x.device)", "torch.zeros(4, device=x.device)"),
        ("x = torch.zeros(4).to(device=x.device)", "torch.zeros(4, device=x.device)"),
        ("x = torch.zeros(4).to(torch.float16)", None),
        ("x = torch.zeros(4).to(device, torch.float16)", None),
        ("x = torch.zeros(4, device=device).to(other)", None),
        ("x = torch.tensor(rows).to(device)", None),
        ("x = batch.to(device)", None),
        ("x = torch.zeros(4).to(other)", None),
        ("x = torch.ones(4).to(dtype).to(device)", None),
        ("order = torch.randperm(n, generator=g).to(device)", None),
        ("torch.zeros(4", None),
        ("", None),
    ],
)
def test_a_line_that_fills_a_tensor_and_copies_it(source: str, instead: str | None) -> None:
    assert filled_on_device(source) == instead
    analysis = device_step(idle("copy", 0.3), calls=2, kind="h2d")
    site = replace(SITE, source=source)
    analysis = replace(analysis, call_sites=(replace(analysis.call_sites[0], site=site),))
    assert found(analysis) == (["made-on-host"] if instead else [])
    if instead:
        assert finding_text(first(analysis)).code == instead


def with_measures(analysis: Analysis, **values: float) -> Analysis:
    measures = {name: Measure(name, value, "1/step") for name, value in values.items()}
    return replace(analysis, measures={**analysis.measures, **measures})


def test_launches_that_the_device_waits_for() -> None:
    launching = device_step(idle("launch", 0.2), idle("framework", 0.2), calls=900, kind="launch")
    busy = with_measures(launching, launches_per_step=900, device_utilization=0.5)
    assert found(busy) == ["many-small-kernels"]
    assert first(busy).gain == pytest.approx(1 / 0.6)
    assert first(busy).values["kernel"] == pytest.approx(0.05 / 900)
    assert found(with_measures(launching, launches_per_step=5, device_utilization=0.5)) == []
    first_calls = replace(busy, idle=(replace(idle("launch", 0.2), seconds_per_step=5.0),))
    assert found(first_calls) == [], "a launch does not take 5 ms"


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([DevicePart("communication", "", 0.5, 0.4), DevicePart("compute", "", 0.5, 0.5)], "exposed-communication"),
        ([DevicePart("communication", "", 0.5, 0.04)], ""),
        ([DevicePart("h2d", "pageable", 0.3, 0.3)], "pageable-copies"),
        ([DevicePart("h2d", "pinned", 0.3, 0.3)], "exposed-copies"),
        ([DevicePart("d2h", "pageable", 0.3, 0.3)], "exposed-copies"),
        ([DevicePart("h2d", "pinned", 0.3, 0.05)], ""),
        ([DevicePart("h2d", "pageable", 0.3, 0.01)], ""),
    ],
)
def test_a_device_that_does_something_else_than_computing(parts: list[DevicePart], expected: str) -> None:
    assert found(replace(device_step(), device_parts=tuple(parts), idle=(idle("python", 0.01),))) == expected.split()


def test_input_of_a_trace_without_parts() -> None:
    waiting = replace(device_step(idle("input", 0.5)), call_sites=())
    assert found(waiting) == ["exposed-input"]
    assert first(waiting).gain == pytest.approx(2.0)
    assert found(replace(device_step(idle("input", 0.03)), call_sites=())) == []
    known = replace(waiting, input=(main_process("dataset", 0.5),), loader=ALONE)
    assert "exposed-input" not in found(known), "rules about loaders know more"
    assert found(step(input=0.5, compute=0.5)) == [], "a CPU is never idle"


def test_few_launches_hide_no_copies_of_a_busy_device() -> None:
    few = with_measures(device_step(idle("python", 0.01)), launches_per_step=0.0)
    few = replace(
        few, device_parts=(DevicePart("h2d", "pageable", 0.9, 0.9),), step=StepDefinition(StepKind.WHOLE_TRACE)
    )
    assert found(few) == ["pageable-copies"]
    idle_too = replace(few, idle=(idle("python", 0.5),))
    assert found(idle_too) == []


def test_a_setting_that_fills_new_memory() -> None:
    """Its line is known, and not what it costs."""
    line = {"deterministic": {"file": "train.py", "line": 9, "function": "main", "source": ""}}
    analysis = with_facts(step(compute=0.9), fills_memory=True, setting_lines=line)
    [finding] = [each for each in causes(analysis) if each.rule.name == "memory-fills"]
    check_words(finding)
    assert [site.line for site in finding.sites] == [9]
    assert (finding.seconds, finding.gains) == (0.0, ())
    assert "fill_uninitialized_memory = False" in finding_text(finding).fix


def test_settings() -> None:
    half = with_facts(step(compute=0.9, python=0.1), float64_parameters=1.0)
    assert found(half) == ["float64", "python-loop"]
    assert not first(half).gains[0].is_least
    below = LineCost(SITE, "", 0.05, 0.5, 0.5, 0.5, 50, {"compute": 0.05})
    convolutions = replace(half, library=(LibraryFunction("torch/nn/modules/conv.py", "Conv2d.forward", below),))
    assert first(convolutions).gains[0].is_least, "they gain more"
    assert first(half).gain == pytest.approx(1 / 0.55)
    assert found(with_facts(half, float64_parameters=0.01)) == ["python-loop"]
    compiling = Phase(Stage.COMPILE, 0.05, 0.5, 0.5, 0.5, SITE, categories={"framework": 0.05})
    first_time = replace(step(framework=0.7, compute=0.3), phases=(compiling,))
    assert found(first_time) == ["many-small-operators"]
    assert found(with_measures(first_time, steps=100, recompilations_per_step=0.02)) == ["many-small-operators"]
    again = with_measures(first_time, steps=100, recompilations_per_step=0.2)
    assert found(again) == ["recompilation", "many-small-operators"]
    assert "20 times in 100 steps" in finding_text(first(again)).evidence[1]


def test_a_gpu_that_is_not_used_has_no_predicted_gain() -> None:
    analysis = step(compute=1.0)
    there = replace(analysis, info=replace(analysis.info, devices=({"name": "NVIDIA T4"},)))
    assert found(there) == ["gpu-unused"]
    assert first(there).gains == ()
    assert found(with_facts(there, device="cuda")) == []


def with_frame(analysis: Analysis, function: str, file: str, share: float, **categories: float) -> Analysis:
    """The step with samples in a function of a library below one line of the user's."""
    parts = {name: 0.1 * part for name, part in categories.items()}
    line = LineCost(SITE, function, 0.1 * share, share, 0.9 * share, 1.1 * share, 200, parts)
    return replace(analysis, library=(LibraryFunction(file, function, line),))


ADAM = {
    "class": "torch.optim.adamw.AdamW", "foreach": False, "fused": None, "capturable": False, "differentiable": False,
    "tensors": 200, "elements": 12_800, "devices": ["cpu"],
    "file": "train.py", "line": 9, "function": "main", "variable": "optimizer",
}  # fmt: skip


def with_optimizer(share: float, **changes: Any) -> Analysis:
    analysis = with_frame(step(compute=1.0), "_single_tensor_adamw", "torch/optim/adamw.py", share, compute=share)
    return with_facts(analysis, torch="2.13.0+cpu", optimizers=[ADAM | changes])


def test_an_optimizer_that_updates_one_tensor_after_the_other() -> None:
    slow = with_optimizer(0.4)
    assert found(slow) == ["single-tensor-optimizer"]
    assert first(slow).gain == pytest.approx(1 / 0.7), "a fused one takes a quarter of the time"
    assert first(slow).sites == (Site("train.py", 9, "main"), SITE)
    assert finding_text(first(slow)).code == "optimizer = AdamW(..., fused=True)"
    assert first(with_optimizer(0.4, foreach=None)).gains == (), "these are torch's default settings"
    assert first(with_optimizer(0.2)).gains, "the program chose them"
    assert found(with_optimizer(0.04)) == []
    assert found(with_optimizer(0.4, **{"class": "torch.optim.sgd.SGD"})) == []
    assert found(with_optimizer(0.4, devices=["cpu", "cuda"])) == []
    assert found(with_facts(slow, torch="2.3.1")) == []
    assert found(with_facts(slow, optimizers=[ADAM, ADAM])) == []
    assert found(with_facts(with_frame(step(compute=1.0), "adamw", "torch/optim/adamw.py", 0.4, compute=0.4))) == []


def test_denormal_numbers_are_told_where_they_are_computed_with() -> None:
    of_update = first(with_facts(with_optimizer(0.4), denormal=0.3))
    assert "Of sampled numbers, 30% are denormal" in " ".join(finding_text(of_update).evidence)
    assert "denormal" not in " ".join(finding_text(first(with_facts(with_optimizer(0.4), denormal=0.01))).evidence)
    computing = with_facts(step(compute=1.0), optimizers=[ADAM], device="cpu")
    told, healthy = (
        next(each for each in find(analysis).findings if each.rule.name in ("compute", DENORMAL_COMPUTING))
        for analysis in (with_facts(computing, denormal=0.3), computing)
    )
    assert "set_flush_denormal" in finding_text(told).fix
    assert told.cure_site is not None
    assert told.cure_site.place == (ADAM["file"], ADAM["line"])
    assert "denormal numbers" in finding_text(told).title
    assert "set_flush_denormal" not in finding_text(healthy).fix
    growing = of_growth(grown(0.01, 0.02, 0.04, device="cpu", denormal=0.3, lines=(line_cell(7, 0.7),)))
    assert growing is not None
    assert finding_text(growing).fix.startswith("Many numbers of the model")


def with_groups(function: str = "_multi_tensor_adamw", **changes: Any) -> Analysis:
    given = with_frame(step(compute=1.0), function, "torch/optim/adamw.py", 0.5, compute=0.5)
    return with_facts(given, torch="2.13.0+cpu", optimizers=[ADAM | {"groups": 200, "settings": 1} | changes])


def test_an_optimizer_with_a_group_for_each_tensor() -> None:
    assert found(with_groups()) == ["single-tensor-optimizer"]
    assert "group of parameters" in finding_text(first(with_groups())).title
    assert first(with_groups()).gain == pytest.approx(1 / (0.5 + 0.12 * 0.5))
    assert first(with_groups(fused=True)).gain == pytest.approx(1 / (0.5 + 0.25 * 0.5))
    assert finding_text(first(with_groups())).code == "AdamW(model.parameters(), ..., fused=True)"
    assert found(with_groups(groups=2)) == []
    assert found(with_groups("Optimizer.step")) == [], "a closure runs the whole step within it"


def test_groups_for_different_settings_are_needed() -> None:
    assert first(with_groups(settings=50)).gain == pytest.approx(1 / (0.5 + 0.25 * 0.5)), "50 groups of 200 remain"
    two = first(with_groups(settings=2))
    assert finding_text(two).code == "", "one group would have one setting"
    assert "2 different settings" in " ".join(finding_text(two).evidence)
    assert found(with_groups(settings=200)) == []


def test_no_other_optimizer_is_told_to_be_fused() -> None:
    assert found(with_groups(**{"class": "torch.optim.rprop.Rprop"})) == []
    assert found(with_facts(with_groups(), torch="2.3.1")) == []


def test_gradients_that_are_filled_with_zeros() -> None:
    filling = with_frame(step(compute=1.0), "Optimizer.zero_grad", "torch/optim/optimizer.py", 0.1, compute=0.1)
    assert found(filling) == [], "to drop them may take time as well"
    counted = with_measures(filling, zero_fills_per_step=1.0)
    assert found(counted) == ["zero-filled-gradients"]
    assert first(counted).gain == pytest.approx(1 / 0.9)
    of_user = with_frame(counted, "zero_grad", "/home/someone/pytorch/train.py", 0.1, compute=0.1)
    assert found(of_user) == [], "it is not torch's"
    large = with_facts(counted, optimizers=[ADAM | {"elements": 10_000_000}])
    assert first(large).gain == pytest.approx(1 / 0.7), "the backward pass adds to them"
    recorded = with_measures(counted, zero_fill_ns_per_step=0.02e9)
    assert first(recorded).gain == pytest.approx(1 / 0.8), "samples are less exact"
    assert first(recorded).confidence is Confidence.HIGH


def test_only_the_stacks_that_anomaly_detection_records_are_its_cost() -> None:
    analysis = with_frame(step(compute=0.6, python=0.4), "format_stack", "traceback.py", 0.3, python=0.3)
    assert found(analysis) == ["python-loop"]
    switched_on = with_facts(analysis, anomaly_detection=True)
    assert found(switched_on) == ["debug-mode", "python-loop"]
    assert first(switched_on).gain == pytest.approx(1 / 0.7)
    checking = with_facts(switched_on, operators={"lines": [], "nan_checks": 0.02})
    assert first(checking).gain == pytest.approx(1 / 0.5)
    assert len(finding_text(first(checking)).evidence) == len(finding_text(first(switched_on)).evidence) + 1
    checking = with_facts(checking, operators={"lines": [], "nan_checks": 0.2})
    assert first(checking).costs == pytest.approx({"python": 0.03, "compute": 0.06}), "no more than is computed"
    assert found(with_facts(step(compute=0.6, python=0.4), anomaly_detection=True)) == ["python-loop"]
    waiting = with_frame(step(python=0.5, core=0.5), "format_stack", "torch/fx/traceback.py", 0.6, python=0.3, core=0.3)
    debug = next(
        each for each in find(with_facts(waiting, anomaly_detection=True))[0] if each.rule.name == "debug-mode"
    )
    assert debug.seconds == pytest.approx(0.03), "its waits for a core are another finding's"
    assert debug.share == pytest.approx(0.6)


def test_lines_that_change_settings_come_first() -> None:
    place = {"file": "train.py", "line": 2, "function": "main"}
    lines = {SETTINGS: {"anomaly": place, "float64": place, "profiler": place}}
    checked = with_frame(step(compute=0.6, python=0.4), "format_stack", "traceback.py", 0.3, python=0.3)
    double = step(compute=1.0)
    for ill in (with_facts(checked, anomaly_detection=True), with_facts(double, float64_parameters=1.0)):
        before, after = first(ill), first(with_facts(ill, **lines))
        assert after.gain == before.gain
        assert after.sites[:2] == (Site.from_fact(place), *before.sites[:1])


def test_a_profiler_of_the_program() -> None:
    stepped = step(framework=0.8, compute=0.2)
    profiling = with_frame(stepped, "profile.step", "torch/profiler/profiler.py", 0.6, framework=0.6)
    assert found(profiling)[0] == "profiler-left-on"
    assert first(profiling).gain == pytest.approx(1 / 0.4)
    assert first(profiling).sites == (SITE,)
    other = with_frame(stepped, "profile.step", "mine/profiler.py", 0.6, framework=0.6)
    assert "profiler-left-on" not in found(other)


def test_a_variable_that_makes_launches_wait() -> None:
    waiting = device_step(idle("launch", 0.2), idle("framework", 0.2))
    assert found(waiting) == []
    assert found(with_facts(waiting, debug_variables={"NCCL_DEBUG": "INFO"})) == []
    blocking = with_facts(waiting, debug_variables={"CUDA_LAUNCH_BLOCKING": "1"})
    assert found(blocking) == ["blocking-launches"]
    assert first(blocking).gains == ()
    assert found(with_facts(step(compute=1.0), debug_variables={"CUDA_LAUNCH_BLOCKING": "1"})) == []


def test_copies_name_the_lines_that_wait_and_the_loader_that_does_not_pin() -> None:
    waiting, pinned = (
        CallSite(Site("train.py", line, "f"), "h2d", 1.0, 0.02, blocked, 1e6, "to")
        for line, blocked in ((30, 0.02), (31, 0.0))
    )
    train = LoaderSettings("DataLoader (train.py:9)", Site("train.py", 9, "main"), "train_loader", 2, 16, 2, share=1.0)
    part = DevicePart("h2d", "pageable", 0.3, 0.3)
    analysis = replace(device_step(), device_parts=(part,), idle=(idle("python", 0.01),), call_sites=(pinned, waiting))
    assert first(analysis).sites == (waiting.site,)
    assert finding_text(first(analysis)).evidence[1:] == ("The host waits 20% of each step in copies to the device.",)
    unpinned = replace(analysis, loader=replace(BUSY, loaders=(train,)))
    assert finding_text(first(unpinned)).code.startswith("train_loader = DataLoader(..., pin_memory=True)")
    assert "does not pin" in finding_text(first(unpinned)).evidence[2]


def with_stages(**seconds: float) -> Analysis:
    whole = sum(seconds.values())
    stages = (StageTime(Stage[name.upper()], each, each / whole, 0.0, 1.0) for name, each in seconds.items())
    line = LineCost(SITE, "load", 20.0, 1.0, 1.0, 1.0, 100)
    periods = (UnmeasuredPeriod(Period.STARTUP, 20.0, (line,)), UnmeasuredPeriod(Period.TEARDOWN, 20.0, (line,)))
    return replace(step(compute=1.0), stages=tuple(stages), startup_teardown=periods)


def test_long_stretches_outside_of_the_steps() -> None:
    start = with_stages(**{"import": 10.0}, start=30.0, train=119.0, end=1.0)
    assert found(start) == ["long-startup"]
    assert finding_sentence(first(start)) == (
        "Much of the run passes before its first step at train.py:14: 25% of the run."
    )
    assert first(start).is_of_run
    assert first(start).gains == ()
    assert found(with_stages(**{"import": 10.0}, start=30.0, train=600.0, end=1.0)) == []
    assert found(with_stages(**{"import": 5.0}, start=4.0, train=10.0, end=1.0)) == []
    assert found(with_stages(**{"import": 20.0}, start=4.0, train=10.0, end=1.0)) == []
    own = with_stages(**{"import": 5.0}, start=12.0, train=10.0, end=1.0)
    assert found(replace(own, info=replace(own.info, level="standard"))) == ["long-startup"]
    assert found(replace(own, info=replace(own.info, level="light"))) == [], "which does not record imports"
    end = with_stages(start=1.0, train=60.0, end=31.0)
    assert found(end) == ["long-tail"]
    assert "final test" in finding_text(first(end)).evidence[-1]
    assert "GPU" not in finding_text(first(end)).fix, "a test of the model needs one"


def quartiles(thirds: Sequence[float], spread: float = 0.1) -> tuple[tuple[float, float, float], ...]:
    return tuple(((1 - spread) * each, each, (1 + spread) * each) for each in thirds)


def grown(
    *usual: float, lines: tuple[Cell, ...] = (), spread: float = 0.1,
    phases: Mapping[str, Sequence[float]] | None = None, **facts: Any,
) -> Analysis:  # fmt: skip
    """A run whose usual steps, and their phases, take so long in each third of the steps."""
    of_phases = {name: quartiles(thirds) for name, thirds in (phases or {"": usual} if usual else {}).items()}
    ledger = Ledger(lines, steps={MAIN: 90}, usual=quartiles(usual, spread), usual_phases=of_phases)
    return replace(with_facts(with_measures(step(compute=1.0), steps=90), **facts), ledger=ledger)


def line_cell(line: int, seconds: float, phase: str = "", owner: Owner = Owner.USER, function: str = "train") -> Cell:
    """Seconds of a line in the measured steps."""
    place, ends = Site("train.py", line, function), (seconds, seconds, seconds, 100.0)
    return Cell(0, MAIN, LedgerPeriod.STEPS, phase, "compute", owner, "", place, "", Recurrence.EACH, 0.0, *ends)


def of_growth(analysis: Analysis) -> Finding | None:
    return next((each for each in find(analysis).findings if each.rule.name == "growing-steps"), None)


@pytest.mark.parametrize(
    ("usual", "grows"),
    [
        ((0.01, 0.015, 0.03), True),
        ((0.01, 0.03, 0.03), False),  # it jumped once
        ((0.01, 0.01, 0.03), False),
        ((0.01, 0.011, 0.012), False),
        ((), False),
    ],
)
def test_steps_that_take_longer_and_longer(usual: tuple[float, ...], *, grows: bool) -> None:
    finding = of_growth(grown(*usual, lines=(line_cell(7, 0.6), line_cell(8, 0.3))))
    assert (finding is not None) is grows
    if finding is not None:
        assert [site.line for site in finding.sites] == [7]
        assert finding.is_growth
        assert "67% of the time is at train.py:7" in finding_text(finding).evidence[1]


def test_steps_of_very_different_lengths_do_not_grow() -> None:
    varying = {"": (0.01, 0.02, 0.02)}
    assert of_growth(grown(0.01, 0.015, 0.03, lines=(line_cell(7, 0.6),), spread=0.6, phases=varying)) is None


def test_a_phase_that_grows_makes_steps_grow() -> None:
    """Other phases may vary more than it grows."""
    phases = {"backward": (0.003, 0.008, 0.018), "": (0.007, 0.007, 0.012)}
    lines = line_cell(7, 0.3), line_cell(8, 0.2, "backward")
    growing = grown(0.01, 0.015, 0.03, lines=lines, spread=0.6, phases=phases)
    finding = of_growth(growing)
    assert finding is not None
    assert [site.line for site in finding.sites] == [8], "the larger line is in another phase"
    assert "in the backward pass: 3.00 ms, later 18.0 ms" in finding_text(finding).evidence[0]
    assert of_growth(grown(0.01, 0.011, 0.012, lines=lines, phases=phases)) is None, "that is too little of a step"


def test_steps_of_threads_beside_other_programs_do_not_grow() -> None:
    busy = (Notice("other-programs", {"used": 1.4, "cores": 2}),)
    assert of_growth(replace(grown(0.01, 0.02, 0.03, torch_threads=2), warnings=busy)) is None
    assert of_growth(replace(grown(0.01, 0.02, 0.03, torch_threads=1), warnings=busy)) is not None


@pytest.mark.parametrize(
    ("lines", "phases"),
    [
        ((), None),
        ((line_cell(7, 0.5), line_cell(8, 0.5, function="log")), None),
        ((line_cell(7, 0.5),), {"": (0.005, 0.01, 0.02), "backward": (0.005, 0.01, 0.02)}),
        ((line_cell(7, 0.5, "backward"),), {"": (0.005, 0.015, 0.035), "backward": (0.005, 0.005, 0.005)}),
    ],
)
def test_no_line_is_named_that_may_not_grow(
    lines: tuple[Cell, ...], phases: Mapping[str, Sequence[float]] | None
) -> None:
    finding = of_growth(grown(0.01, 0.02, 0.04, lines=lines, phases=phases))
    assert finding is not None
    assert finding.sites == ()


def test_a_function_whose_lines_grow_together_is_named() -> None:
    finding = of_growth(grown(0.01, 0.02, 0.04, lines=(line_cell(7, 0.3), line_cell(8, 0.4), line_cell(9, 0.3))))
    assert finding is not None
    assert [site.line for site in finding.sites] == [8], "the larger of its lines"
    assert finding_text(finding).evidence[1] == "There 100% of the time is in train()."


def test_a_library_in_which_a_line_grows_is_named() -> None:
    kinds = ("compute", 0.4, "render.render"), ("framework", 0.3, "render.render"), ("python", 0.2, "render.Tap.keep")
    cells = [
        replace(
            line_cell(7, seconds, owner=Owner.LIBRARY), kind=kind, package="glimpse", function=f"glimpse.{function}"
        )
        for kind, seconds, function in kinds
    ]
    finding = of_growth(grown(0.01, 0.02, 0.04, lines=(*cells, line_cell(7, 0.1))))
    assert finding is not None
    assert finding_text(finding).evidence[1] == (
        "There 100% of the time is at train.py:7, mostly in glimpse.render.render()."
    )


def test_growing_work_of_torch_may_be_denormal_numbers() -> None:
    at_line = {"lines": (line_cell(7, 0.7, owner=Owner.TORCH),)}
    everywhere = {"phases": {"": (0.005, 0.01, 0.02), "backward": (0.005, 0.01, 0.02)}}
    for where in (at_line, everywhere):
        for device, is_told in (("cpu", True), ("cuda", False)):
            finding = of_growth(grown(0.01, 0.02, 0.04, device=device, **where))
            assert finding is None or ("set_flush_denormal" in finding_text(finding).fix) is is_told
        assert of_growth(grown(0.01, 0.02, 0.04, device="cpu", **where)) is not None
    own = of_growth(grown(0.01, 0.02, 0.04, device="cpu", lines=(line_cell(7, 0.7),)))
    assert own is not None
    assert "set_flush_denormal" not in finding_text(own).fix


def test_advice_about_a_line_that_grows_is_against_its_growth() -> None:
    line = line_cell(SITE.line, 0.8)
    analysis = grown(0.01, 0.02, 0.04, lines=(line,))
    growth = of_growth(analysis)
    general = Finding(
        RuleText("r", "Slow", (), "Do it less often.", is_of_code=True), 0.5, 0.5, 0.4, 0.6, Confidence.HIGH,
        places=(Place(line.place or SITE, 0.5),),
    )  # fmt: skip
    assert growth is not None
    assert finding_text(with_growth(general, growth)).fix == finding_text(growth).fix
    elsewhere = replace(general, places=(Place(replace(SITE, line=99), 0.5),))
    for other, of_growing in ((elsewhere, growth), (general, None), (replace(general, known_cure="Known."), growth)):
        assert with_growth(other, of_growing) == other


def test_threads_beside_other_programs() -> None:
    """What one thread would gain beside them is not known: they delay it, too."""
    busy = with_facts(step(core=0.5, compute=0.5), torch_threads=2, cores=2)
    assert found(busy) == ["noisy-machine"]
    others = (Notice("other-programs", {"used": 1.4, "cores": 2}),)
    busy = replace(busy, warnings=others, info=replace(busy.info, host={"cores": 2}))
    assert found(busy) == ["more-threads-than-cores"]
    assert first(busy).gains == ()
    assert first(busy).filled_settings() == {"threads": 1}
    assert finding_text(first(busy)).code == "", "on a quiet machine more threads are faster"
    assert "OMP_NUM_THREADS=1" in finding_text(first(busy)).fix
    assert found(with_facts(busy, torch_threads=1)) == ["noisy-machine"]
    of_many = with_facts(busy, torch_threads=8)
    assert first(of_many).gains, "these are more than there are cores at all"
    assert "OMP_NUM_THREADS" not in finding_text(first(of_many)).fix
    bound = replace(busy, info=replace(busy.info, host={**busy.info.host, "cores": 64}))
    assert found(bound) == ["noisy-machine"], "the others may use the other 62 cores"


def test_processes_of_the_program_take_cores() -> None:
    beside = with_measures(
        with_facts(step(core=0.5, compute=0.5), torch_threads=1, cores=2), children_cpu=1.2, host_cpu=0.6
    )
    of_program = with_measures(beside, without_core=0.1)
    assert found(of_program) == ["processes-share-cores", "noisy-machine"]
    assert found(with_measures(beside, without_core=0.5)) == ["noisy-machine"], "other programs take them"
    assert found(with_measures(of_program, children_cpu=0.1)) == ["noisy-machine"]
    assert found(with_facts(of_program, cores=8)) == ["noisy-machine"], "there are free ones"
    assert found(beside) == ["noisy-machine"], "what others took is not known"
    alone = first(with_facts(of_program, omp_num_threads="1"))
    assert "set_num_threads" not in finding_text(alone).fix
    assert "set_num_threads" in finding_text(first(of_program)).fix
    made = {
        "processes": {"file": "train.py", "line": 4, "function": "Games.__init__"},
        f"processes{MADE_BY}": {"file": "train.py", "line": 9, "function": "main"},
    }
    assert [site.line for site in first(with_facts(of_program, setting_lines=made)).sites] == [4, 9]
    workers = LoaderUse(batches=1.0, starts=0.0, workers=2)
    assert "processes-share-cores" not in found(replace(of_program, loader=workers))


def test_memory_that_grows() -> None:
    growing = replace(with_measures(step(compute=1.0), steps=1000, peak_memory=1e9), breakdown={})
    growth = Measure("memory_growth", 2e5, "bytes/step", 1e5, 3e5)
    creeping = replace(growing, measures={**growing.measures, "memory_growth": growth})
    assert found(creeping) == ["memory-creep"]
    assert "200 kB" in finding_text(first(creeping)).evidence[0]
    assert "replay buffer" in finding_text(first(creeping)).evidence[-1], "it is no mistake there"
    assert first(creeping).confidence is Confidence.MEDIUM
    assert finding_sentence(first(creeping)) == "The memory of the training process grows with each step."
    little = replace(growing, measures={**growing.measures, "memory_growth": replace(growth, value=2e4)})
    assert found(little) == []
    assert found(growing) == []


def test_small_operators_by_line() -> None:
    lines = [
        LineCost(Site("train.py", number, "f"), "", 0.05, 0.5, 0.4, 0.6, 50, {"compute": 0.05}) for number in (3, 4)
    ]
    ill = replace(step(compute=1.0), lines=tuple(lines))

    def counted(*rows: OperatorLine) -> Finding | None:
        findings, *_ = find(replace(ill, operators=rows))
        return next((each for each in findings if each.rule.name == "many-small-operators"), None)

    small = OperatorLine(Site("train.py", 3, "g"), False, "", 900, 0.010, 899, 0.008)
    large = OperatorLine(Site("train.py", 4, "g"), False, "", 2, 0.040, 0, 0.0)
    finding = counted(small, large)
    assert finding is not None
    # twice as long as when counted: 8 of 10 ms that operators take, and nearly all of the 4.5 ms of 900 calls
    assert finding.seconds == pytest.approx(2 * 0.0125, abs=1e-4)
    usual = counted(replace(small, small_count=800, small_seconds=0.004), large)
    assert usual is None, "small operators beside large ones"
    assert finding.sites == (Site("train.py", 3, "g"),)
    assert counted(large) is None
    assert counted(replace(small, caller="optimizer"), large) is None
    of_parameters = replace(small, site=None, is_backward=True)
    assert counted(of_parameters, large) is None, "each parameter has one that adds up its gradient"
    whole = OperatorLine(Site("train.py", 3, "g"), False, "", 2, 0.002, 1, 0.0)
    assert counted(replace(small, is_backward=True), whole) is None, "the operators are torch's own, of one large one"
    # of very many operators no line is known: the share of all is that of each line
    finding = counted(replace(small, site=None))
    assert finding is not None
    assert finding.seconds == pytest.approx(0.08)


@pytest.mark.parametrize(
    ("source", "function", "advice"),
    [
        ("hidden = self.cell(inputs[t], hidden)", "Net.forward", "instead of self.cell() for each"),
        ("gate = torch.sigmoid(self.gate(x))", "OwnCell.forward", "instead of OwnCell() for each"),
        (
            "mean.mul_(decay).add_(parameter, alpha=1 - decay)",
            "update",
            "by one call of torch._foreach_lerp_ or an optimizer of torch.optim, not by add_()",
        ),
        ("torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)", "train", "one operator for all items instead"),
        ("means = [part.mean() for part in parts]", "train", "one operator for all of parts"),
        ("total = total + part.mean()", "train", "one operator for all items instead"),
        ("for part in parts:", "train", "one operator for all items instead"),
    ],
)
def test_the_advice_on_small_operators_fits_the_line_that_calls_them(source: str, function: str, advice: str) -> None:
    site, model = Site("train.py", 3, function, source), Site("train.py", 9, "forward")
    line = LineCost(site, "", 0.05, 0.5, 0.4, 0.6, 50, {"compute": 0.05})
    rows = [OperatorLine(site, False, "", 900, 0.01, 900, 0.01), OperatorLine(model, True, "", 9, 0.01, 0, 0.0)]
    judged = first(replace(step(compute=1.0), lines=(line,), operators=tuple(rows)))
    assert advice in finding_text(judged).fix
    if "_(" in source:  # what has gradients is a part of the model
        rows.append(replace(rows[0], is_backward=True))
        in_model = first(replace(step(compute=1.0), lines=(line,), operators=tuple(rows)))
        assert "one operator for all items instead" in finding_text(in_model).fix


def test_python_of_small_operators_beyond_that_of_the_step_is_computing() -> None:
    """Samples saw Python at the line, where hooks recorded that most of a step's time is in operators."""
    line = LineCost(Site("train.py", 3, "f"), "", 0.04, 0.4, 0.3, 0.5, 50, {"python": 0.04})
    small = OperatorLine(Site("train.py", 3, "f"), False, "", 10_000, 0.018, 10_000, 0.018)
    found_by = {
        finding.rule.name: finding
        for finding in find(replace(step(compute=0.9, python=0.1), lines=(line,), operators=(small,)))[0]
    }
    assert found_by["many-small-operators"].costs == pytest.approx({"compute": 0.03, "python": 0.01})


def test_python_that_calls_small_operators_is_no_loop_of_python() -> None:
    """Torch reads the arguments of operators while it holds the GIL: samples call that Python."""
    calling = LineCost(Site("train.py", 3, "f"), "", 0.04, 0.4, 0.3, 0.5, 50, {"compute": 0.02, "python": 0.02})
    looping = replace(calling, site=Site("train.py", 5, "f"), categories={"python": 0.04})
    small = OperatorLine(Site("train.py", 3, "f"), False, "", 10_000, 0.018, 10_000, 0.018)
    both = replace(step(compute=0.4, python=0.6), lines=(calling, looping), operators=(small,))
    found_by = {finding.rule.name: finding for finding in causes(both)}
    assert found_by["many-small-operators"].costs == pytest.approx({"compute": 0.02, "python": 0.02})
    assert found_by["python-loop"].seconds == pytest.approx(0.04)
    assert [site.line for site in found_by["python-loop"].sites] == [5]
    # without lines of the program's operators, but with lines of an optimizer's, nobody knows where they are
    nowhere = replace(small, site=None)
    assert "many-small-operators" in found(replace(both, operators=(nowhere,)))
    assert "many-small-operators" not in found(replace(both, operators=(nowhere, replace(small, caller="optimizer"))))
    of_library = replace(step(framework=0.3, compute=0.7), operators=(replace(small, caller="optimizer"),))
    assert found(of_library) == [], "all operators were counted, and the program calls none of them"
    # a line of few operators loops in Python: its calls explain little of its time
    few = replace(both, operators=(replace(small, count=10, seconds=1e-5, small_count=10, small_seconds=1e-5),))
    assert {finding.rule.name for finding in causes(few)} == {"python-loop"}


def test_a_line_of_python_without_operators_computes_nothing() -> None:
    line = LineCost(Site("train.py", 5, "f"), "", 0.05, 0.5, 0.4, 0.6, 50, {"python": 0.04, "compute": 0.01})
    looping = replace(step(compute=0.6, python=0.4), lines=(replace(line, is_outside_torch=True),))
    assert first(looping).costs == pytest.approx({"python": 0.04, "compute": 0.01})
    assert first(replace(looping, lines=(line,))).costs == pytest.approx({"python": 0.04}), "it may call operators"
    collecting = with_measures(looping, gc_time=0.03)
    assert found(collecting) == ["garbage-collection", "python-loop"]
    assert causes(collecting)[1].costs == pytest.approx({"python": 0.01}), "a collection may run at that line"
    mixed = replace(line, categories={"python": 0.02, "compute": 0.03}, is_outside_torch=True)
    assert first(replace(looping, lines=(mixed,))).costs == pytest.approx({"python": 0.04})
    parts = {"python": 0.008, "compute": 0.002, "core": 0.04}
    delayed = replace(line, categories=parts, is_outside_torch=True)
    busy = replace(step(compute=0.12, python=0.08, core=0.8), lines=(delayed,))
    assert first(busy).costs == pytest.approx({"python": 0.008, "compute": 0.002}), "waits for a core are left out"


def test_gradient_functions_of_a_loop_of_small_operators_go_with_it() -> None:
    """The gradient of what each round takes from a tensor may take longer than the round's operators."""
    places = Site("train.py", 3, "f"), Site("train.py", 9, "main")
    lines = [LineCost(site, "", 0.05, 0.5, 0.4, 0.6, 50, {"compute": 0.05}) for site in places]
    backward = Phase("backward", 0.05, 0.5, 0.5, 0.5, places[1])
    forward = OperatorLine(places[0], False, "", 1000, 0.05, 1000, 0.05)
    gradients = OperatorLine(places[0], True, "", 1000, 0.05, 990, 0.02)
    ill = replace(step(compute=1.0), lines=tuple(lines), phases=(backward,), operators=(forward, gradients))
    assert first(ill).rule.name == "many-small-operators"
    assert first(ill).seconds == pytest.approx(0.1)
    # without a loop, an operator that only makes a view may have one gradient that takes long
    few = replace(ill, operators=(forward, replace(gradients, small_count=500)))
    assert first(few).seconds == pytest.approx(0.05)


def test_the_engine_takes_longer_around_a_gradient_function_than_a_call_takes() -> None:
    places = Site("train.py", 3, "f"), Site("train.py", 9, "main")
    lines = [LineCost(site, "", 0.02, 0.2, 0.15, 0.25, 50, {"compute": 0.02}) for site in places]
    backward = Phase("backward", 0.02, 0.2, 0.2, 0.2, places[1])
    rows = [OperatorLine(places[0], of_gradients, "", 1000, 0.001, 1000, 0.001) for of_gradients in (False, True)]
    ill = replace(step(compute=1.0), lines=tuple(lines), phases=(backward,), operators=tuple(rows))
    # 5 and 10 µs around each of 1,000; samples show 20 ms at each line, of a line up to twice what explains it
    assert first(ill).seconds == pytest.approx(2 * 0.006 + 0.02)


def test_few_large_operators_of_a_loop_of_small_ones_go_with_it() -> None:
    """One of 1,000 that takes longer than all others is no work of the loop, and does not hide it."""
    line = LineCost(Site("train.py", 3, "f"), "", 0.05, 0.5, 0.4, 0.6, 50, {"compute": 0.05})
    loop = OperatorLine(line.site, False, "", 1000, 0.03, 999, 0.00999)
    ill = replace(step(compute=1.0), lines=(line,), operators=(loop,))
    # 10 of 30 ms in operators, and 5 ms around them; samples show 50 ms instead of 35
    assert first(ill).seconds == pytest.approx(0.015 * 50 / 35, rel=1e-3)
    usual = replace(loop, small_count=800, small_seconds=0.008)
    assert "many-small-operators" not in found(replace(ill, operators=(usual,)))


def test_batches_that_numpy_makes_before_the_model() -> None:
    line, call = Site("train.py", 21, "make"), Site("train.py", 4, "main")
    making = LineCost(call, "", 0.04, 0.4, 0.35, 0.45, 50, {"compute": 0.03, "python": 0.01})
    at_line = at({"compute": 0.085, "python": 0.015}, line)
    prepared = Preparation(making, "make", (line,))
    ill = replace(step(compute=0.85, python=0.15), lines=(at_line,), preparation=prepared)
    assert found(ill) == ["inline-input"]
    assert first(ill).gain == pytest.approx(1 / 0.6)
    assert first(ill).sites == (line, call)
    assert "Most of it is in make()." in finding_text(first(ill)).evidence
    alone = replace(step(compute=0.85, python=0.15), preparation=Preparation(making, "", (line,)))
    assert not any("Most of it" in sentence for sentence in finding_text(first(alone)).evidence)
    assert "inline-input" not in found(with_facts(ill, device="cuda")), "a device may be busy meanwhile"
    small = OperatorLine(line, False, "", 8000, 0.04, 8000, 0.04)
    at_line = LineCost(line, "", 0.04, 0.4, 0.35, 0.45, 50, {"compute": 0.03, "python": 0.01})
    calling = replace(ill, lines=(at_line,), operators=(small,))
    assert found(calling) == ["many-small-operators"], "its operators are no second cause"


def test_a_python_loop_is_not_at_the_lines_that_make_batches() -> None:
    """Samples show most Python at a line that makes batches, which another rule judges."""
    making, other = Site("train.py", 21, "make"), Site("train.py", 30, "convert")
    lines = [
        LineCost(site, "", 0.1 * share, share, 0.9 * share, 1.1 * share, 100, {"python": 0.1 * share})
        for site, share in ((making, 0.3), (other, 0.2))
    ]
    analysis = replace(
        step(compute=0.5, python=0.5), lines=tuple(lines), preparation=Preparation(lines[0], "", (making,))
    )
    sites = {finding.rule.name: finding.sites for finding in causes(analysis)}
    assert sites == {"inline-input": (making,), "python-loop": (other,)}


def test_other_input_beside_batches_that_numpy_makes() -> None:
    """The larger part is told, and the Python of the smaller one stays that of a loop."""
    making = LineCost(SITE, "make", 0.04, 0.4, 0.35, 0.45, 50, {"compute": 0.02, "python": 0.01, "waiting": 0.01})
    preparation = Preparation(making, "", (SITE,))

    def with_tokenizing(share: float) -> Analysis:
        tokenizing = main_process("tokenize", share, "inline")
        return replace(step(tokenizing, compute=0.5, python=0.1, input=share), preparation=preparation)

    assert first(with_tokenizing(0.01)).costs == pytest.approx({"compute": 0.02, "python": 0.01})
    assert first(with_tokenizing(0.4)).costs == pytest.approx({"input": 0.04})
    assert "python-loop" in found(with_tokenizing(0.4))
    marked = main_process(MARKED_DATA, 0.01, "inline")  # the program says what its input is
    assert "inline-input" not in found(
        replace(step(marked, compute=0.89, python=0.1, input=0.01), preparation=preparation)
    )


def test_the_python_of_a_library_that_runs_the_loop_is_no_loop_of_the_program() -> None:
    looping = step(python=0.3, compute=0.7)
    assert first(looping).rule.name == "python-loop"
    assert first(looping).gain
    whole = LineCost(SITE, "fit", 0.09, 0.9, 0.8, 1.0, 200, {"python": 0.03, "compute": 0.06})
    fit = LibraryFunction("lightning/pytorch/trainer/trainer.py", "Trainer.fit", replace(whole, seconds_per_step=0.088))
    assert first(replace(looping, lines=(whole,))).gain
    assert found(replace(looping, lines=(whole,), library=(fit,))) == [], (
        "it is told as it is, with the library's function"
    )
    update = Phase("optimizer", 0.01, 0.1, 0.1, 0.1, site=replace(SITE, line=30))
    assert first(replace(looping, lines=(whole,), library=(fit,), phases=(update,))).gain, "the loop is the program's"
    at_line = replace(update, site=SITE)
    assert found(replace(looping, lines=(whole,), library=(fit,), phases=(at_line,))) == []
    part = replace(fit, below=replace(whole, seconds_per_step=0.05))
    assert first(replace(looping, lines=(whole,), library=(part,))).gain
    acting = replace(whole, seconds_per_step=0.04, share=0.4)
    environment = LibraryFunction("gymnasium/core.py", "Wrapper.step", replace(acting, seconds_per_step=0.03))
    assert found(replace(looping, lines=(acting,), library=(environment,))) == []
    other = replace(environment, file="simulator/core.py")
    assert first(replace(looping, lines=(acting,), library=(other,))).gain


def test_a_line_that_works_on_whole_arrays_is_not_told_to_vectorize() -> None:
    for source, words in (
        ("rows = np.random.choice(size, 64, p=weights)", "call np.random.choice() once on whole arrays"),
        ("total += abs(value)", "Vectorize loops over elements"),
    ):
        looping = replace(step(python=0.5, compute=0.5), lines=(at({"python": 0.05}, replace(SITE, source=source)),))
        assert first(looping).rule.name == "python-loop"
        assert words in finding_text(first(looping)).fix


def test_polling_and_waits_for_processes_have_advice_of_their_own() -> None:
    waiting = replace(step(waiting=0.6, compute=0.4), lines=(at({"waiting": 0.06}),))
    assert first(waiting).rule.name == "blocked-thread"
    assert first(waiting).gains[0].is_least
    asking = replace(SITE, source="batch = queue.get(block=False)")
    polling = first(replace(waiting, lines=(at({"waiting": 0.06}, asking),)))
    assert "Let get() block" in finding_text(polling).fix
    receive = LibraryFunction("multiprocessing/connection.py", "Connection.recv", at({"waiting": 0.06}))
    of_processes = first(replace(waiting, library=(receive,)))
    assert "torch.set_num_threads(1) in each of them" in finding_text(of_processes).fix
    assert of_processes.gains[0].is_most, "their work remains"


def test_checks_of_distributions_among_small_operators() -> None:
    line = LineCost(SITE, "", 0.04, 0.4, 0.35, 0.45, 200, {"compute": 0.04})
    rows = (OperatorLine(SITE, False, "", 900, 0.03, 900, 0.03),)
    analysis = replace(step(compute=1.0), lines=(line,), operators=rows)
    checks = LibraryFunction("torch/distributions/distribution.py", "Distribution._validate_sample", line)
    checking = first(replace(analysis, library=(replace(checks, below=replace(line, categories={"compute": 0.01})),)))
    assert "set_default_validate_args(False)" in finding_text(checking).fix
    assert "10%" in finding_text(checking).fix
    few = replace(checks, below=replace(line, categories={"compute": 0.001}))
    assert "validate" not in finding_text(first(replace(analysis, library=(few,)))).fix


def test_the_cost_of_recording_is_no_part_of_a_gain() -> None:
    ill = step(log=0.5, compute=0.5)
    assert first(ill).gain == pytest.approx(2.0)
    assert first(replace(ill, recording=0.01)).gain == pytest.approx((0.1 - 0.01) / (0.05 - 0.01))
    assert first(replace(ill, recording=0.09)).gain == pytest.approx(0.075 / 0.025), "it is an estimate"
    recorded = first(replace(ill, recording=0.01))
    assert recorded.left_out == pytest.approx(0.1)
    assert recorded.recorded_share == pytest.approx(0.5)


def test_waits_that_the_program_does_not_cause_are_a_share_of_all_steps() -> None:
    waits = find(step(core=0.4, throttled=0.3, compute=0.3))[0]
    noisy, throttled = (
        next(each for each in waits if each.rule.name == name) for name in ("noisy-machine", "throttled")
    )
    assert noisy.share == noisy.recorded_share == pytest.approx(0.4)
    assert throttled.gain == pytest.approx(1 / (1 - throttled.share)), "of a step without the other waits"


@pytest.mark.parametrize(("recording", "core"), [(0.0, 0.0), (0.02, 0.0), (0.0, 0.4), (0.02, 0.4), (0.09, 0.3)])
def test_a_share_and_its_gain_agree_on_a_busy_machine(recording: float, core: float) -> None:
    ill = first(replace(step(log=0.3, compute=0.7 - core, core=core), recording=recording))
    assert ill.rule.name == "logging-in-loop"
    assert ill.seconds == pytest.approx(0.03)
    assert ill.gain == pytest.approx(1 / (1 - ill.share))
    assert ill.recorded_share == pytest.approx(0.3)


def test_waits_for_a_core_are_no_collections_of_garbage() -> None:
    """A recorded collection contains waits for a core: without it, these are not there either, but only once."""
    ill = step(gc=0.08, python=0.5, compute=0.2, core=0.3)
    assert first(ill).rule.name == "garbage-collection"
    assert first(ill).seconds == pytest.approx(0.05), "all of Python"
    ill = step(gc=0.05, python=0.5, compute=0.2, core=0.3)
    assert first(ill).seconds == pytest.approx(0.05 * 0.7)
    assert first(ill).gain == pytest.approx(2.0)


def test_a_step_that_only_waits_for_a_core_has_nothing_to_gain() -> None:
    waiting = step(main_process("dataset", 0.5), use=ALONE, input=0.0, core=1.0)
    assert found(waiting) == ["noisy-machine"]
    collecting = replace(step(core=1.0, gc=0.05), breakdown={"core": step(core=1.0).breakdown["core"]})
    assert all(math.isfinite(finding.gain) for finding in causes(collecting))


def test_what_a_cure_needs_waits_for_a_core_too() -> None:
    quiet = with_optimizer(0.4)
    busy = replace(with_optimizer(0.2), breakdown=step(compute=0.5, core=0.5).breakdown)
    assert first(busy).gain == pytest.approx(first(quiet).gain), "a busy machine changes no gain"


def test_torch_waits_in_a_backward_pass_on_its_own() -> None:
    waiting = step(compute=0.8, waiting=0.2)
    assert first(waiting).gains
    backward = Phase("backward", 0.07, 0.7, 0.7, 0.7, SITE)
    assert not first(replace(waiting, phases=(backward,))).gains


def two_reads(*shares: float, calls: float = 1.0) -> Analysis:
    """A step of a device that is idle after a read at each of several lines."""
    sites = [Site("train.py", 20 + number, "main") for number in range(len(shares))]
    rows = [idle("sync", share, site) for share, site in zip(shares, sites, strict=True)]
    reads = tuple(CallSite(site, "sync", calls, 0.02, 0.01, 8.0, "item") for site in sites)
    return replace(device_step(*rows), call_sites=reads)


def test_reads_that_could_be_one() -> None:
    assert found(two_reads(0.2, 0.3, 0.1)) == ["hidden-sync", "several-syncs*"]
    finding = find(two_reads(0.2, 0.3, 0.1))[0][1]
    assert finding.share == pytest.approx(0.3), "the longest one remains"
    assert [site.line for site in finding.sites] == [21, 20, 22]
    assert found(two_reads(0.5)) == ["hidden-sync"]
    assert found(two_reads(0.5, 0.02)) == ["hidden-sync"]
    assert found(two_reads(0.2, 0.3, calls=0.1)) == ["hidden-sync"], "of different steps"


def test_activations_that_are_computed_twice() -> None:
    place = {"file": "train.py", "line": 30, "function": "forward"}
    for function in ("unpack_hook", "forward"):
        again = with_frame(step(compute=1.0), function, "torch/utils/checkpoint.py", 0.25, compute=0.25)
        measured = with_measures(with_facts(again, activation_checkpoints=[place]), peak_memory=1e9)
        roomy = replace(measured, info=replace(measured.info, host={"memory_bytes": 16e9, "memory_limit": None}))
        assert found(roomy) == ["activation-checkpoints"]
        assert first(roomy).gain == pytest.approx(1 / 0.75)
        assert first(roomy).sites == (Site("train.py", 30, "forward"),)
        limited = replace(roomy, info=replace(roomy.info, host={"memory_bytes": 16e9, "memory_limit": 2e9}))
        assert found(limited) == [], "they may be needed"
        assert found(measured) == [], "the memory of the machine is not known"
        assert found(replace(roomy, info=replace(roomy.info, facts={"device": "cpu"}))) == []
        findings, not_judged, _ = find(with_facts(roomy, device="cuda"))
        assert not any(finding.has_cure for finding in findings)
        assert "activation-checkpoints" in {each.rule.name for each in not_judged}


def test_a_loader_with_two_batches_is_not_started_for_each() -> None:
    parts = main_process("the loader itself", 0.4), main_process("dataset", 0.1)
    for starts, names in ((0.6, ["loader-started-anew"]), (0.5, [])):
        analysis = step(*parts, use=LoaderUse(1.0, starts, 0), input=0.5, compute=0.5)
        assert [name for name in found(analysis) if name == "loader-started-anew"] == names


def with_sampler(analysis: Analysis, share: float) -> Analysis:
    """The step with samples in the loader's sampler, at a line of the program's own."""
    line = LineCost(Site("train.py", 5, "main"), "", 0.1 * share, share, 0.9 * share, 1.1 * share, 200)
    line = replace(line, categories={"input": 0.1 * share})
    own = Site("train.py", 30, "Buckets.__iter__")
    function = LibraryFunction("torch/utils/data/dataloader.py", "_BaseDataLoaderIter._next_index", line, (own,))
    return replace(analysis, library=(function,))


def test_workers_do_not_draw_the_indices_of_batches() -> None:
    parts = main_process("the loader itself", 0.4), main_process("dataset", 0.02)
    alone = step(*parts, use=ALONE, input=0.42, compute=0.58)
    assert found(alone) == ["no-workers"], "what the loader itself does is not known"
    assert found(with_sampler(alone, 0.4)) == ["slow-sampler"]
    finding = first(with_sampler(alone, 0.4))
    assert [site.line for site in finding.sites] == [30]
    assert (finding.gain, finding.confidence) == (pytest.approx(1 / 0.6), Confidence.HIGH)
    assert "Drawing the indices of a batch takes 40.0 ms, 40% of each step." in finding_text(finding).evidence
    both = step(main_process("the loader itself", 0.2), main_process("dataset", 0.5), use=ALONE, input=0.7, compute=0.3)
    assert found(with_sampler(both, 0.2))[:2] == ["no-workers", "slow-sampler"]
    assert gain_of("no-workers", with_sampler(both, 0.2)) == pytest.approx(0.1 / 0.051), "the sampler's time remains"
    restarted = replace(with_sampler(alone, 0.4), loader=LoaderUse(1.0, 1.0))
    assert found(restarted) == ["loader-started-anew"], "of a loader that is started for each batch"


def test_batches_are_not_late_where_the_sampler_takes_the_time() -> None:
    parts = main_process("waiting for the workers", 0.4), worker("waiting for an index", 0.9), worker("dataset", 0.1)
    late = step(*parts, use=BUSY, input=0.4, compute=0.6)
    assert found(late) == ["starved-prefetch"]
    assert found(with_sampler(late, 0.37)) == ["slow-sampler"]


@pytest.mark.parametrize(("file_wait", "name"), [(0.0, "slow-collate"), (1.0, "io-bound-input")])
def test_what_workers_make_is_slow_beside_a_slow_sampler(file_wait: float, name: str) -> None:
    parts = main_process("waiting for the workers", 0.5), worker("collate", 0.9)
    use = replace(BUSY, worker_cpu=0.9, file_wait=file_wait, socket_wait=0.0)
    analysis = with_sampler(with_facts(step(*parts, use=use, input=0.5, compute=0.5), cores=2), 0.2)
    assert {*found(analysis)} >= {name, "slow-sampler"}
    assert gain_of(name, analysis) == pytest.approx(1 / 0.7), "the sampler's time remains"


def test_workers_that_are_not_needed_draw_no_indices() -> None:
    parts = worker("waiting for an index", 0.9), worker("dataset", 0.05), main_process("receive", 0.5)
    analysis = with_sampler(step(*parts, use=LoaderUse(1.0, 0.0, 1), input=0.5, compute=0.5), 0.2)
    assert gain_of("needless-workers", analysis) == pytest.approx(1 / 0.75), "the sampler's time remains"


def test_a_busy_machine_does_not_hide_slow_input() -> None:
    """Making batches takes 3% of a step, and a sixth of the time in which the thread has a core."""
    analysis = with_facts(step(main_process("dataset", 0.1), use=ALONE, input=0.03, compute=0.15, core=0.82), cores=1)
    assert found(analysis) == ["slow-dataset-item", "noisy-machine"]


def test_persistent_workers_of_a_loader_that_is_made_anew() -> None:
    made = Site("train.py", 9, "main")
    kept = LoaderSettings("DataLoader (train.py:9)", made, "loader", 2, 16, persistent_workers=True, share=1.0)
    parts = worker("waiting for an index", 0.6), worker("dataset", 0.1), main_process("loader start", 0.4)
    use = LoaderUse(1.0, 0.1, 2, loaders=(kept,), worker_processes=2)
    analysis = step(*parts, use=use, input=0.4, compute=0.6)
    assert found(analysis) == [], "the workers stay"
    anew = replace(analysis, loader=replace(use, worker_processes=20))
    assert [(each.rule.name, each.sites[0]) for each in causes(anew)] == [("workers-started-anew", made)]
    # a library starts them in a function of its own, which every tenth step calls
    starting = {"input": 0.8, "python": 0.2}
    spikes = Spikes(9, 90, 10, 5.0, 0.4, (SpikeLine(SITE, 1.0, "fit"),), 60, enough=True, categories=starting)
    assert found(replace(anew, spikes=spikes)) == ["workers-started-anew"]
    # an agent of this version tells which loaders are made anew, and so those of which one is used after the other
    one_after_the_other = replace(kept, made_anew=False), replace(kept, made_anew=False, share=0.0)
    assert found(replace(anew, loader=replace(anew.loader or use, loaders=one_after_the_other))) == []
    second = replace(kept, site=Site("train.py", 12, "main"), made_anew=True, share=0.4)
    loaders = replace(kept, made_anew=False, share=0.6), second
    (finding,) = causes(replace(anew, loader=replace(use, loaders=loaders)))
    assert finding.values["made_anew"] == second.site, "the first one keeps its workers"


@pytest.mark.parametrize(
    ("persistent", "made_anew", "is_anew"), [(True, None, True), (False, True, True), (False, False, False)]
)
def test_a_loader_that_is_made_anew_must_be_made_once(persistent: bool, made_anew: bool | None, is_anew: bool) -> None:
    made = Site("train.py", 9, "main", "loader = DataLoader(data, 16, num_workers=2)")
    loader = LoaderSettings("DataLoader (train.py:9)", made, "loader", 2, 16, persistent_workers=persistent, share=1.0)
    parts = worker("waiting for an index", 0.6), worker("dataset", 0.1), main_process("loader start", 0.4)
    use = LoaderUse(1.0, 0.1, 2, loaders=(replace(loader, made_anew=made_anew),), worker_processes=20)
    finding = first(step(*parts, use=use, input=0.4, compute=0.6))
    text = finding_text(finding)
    assert finding.rule.name == "workers-started-anew"
    assert any("persistent_workers=True alone" in line for line in text.evidence) == is_anew
    code = "loader = DataLoader(..., persistent_workers=True)  # once, before the epochs"
    assert text.code == (code if is_anew else "loader = DataLoader(data, 16, num_workers=2, persistent_workers=True)")
    assert finding.filled_settings() == (None if is_anew else {"loader": {"persistent_workers": True}})


def test_sites_are_on_distinct_lines() -> None:
    inner, outer, other = (Site("train.py", line, name) for line, name in ((5, "<lambda>"), (5, "main"), (6, "main")))
    assert largest_sites([inner, outer, None, other]) == (inner, other)


def test_the_gradient_of_a_table_of_which_a_step_looks_up_few_rows() -> None:
    lookup, table = Site("net.py", 9, "forward"), Site("net.py", 4, "")
    rows = OperatorLine(lookup, True, "", 1, 0.03, 0, 0.0), OperatorLine(SITE, True, "", 1, 0.01, 0, 0.0)
    phases = (Phase("backward", 0.06, 0.6, 0.6, 0.6, SITE),)
    passes = replace(step(compute=1.0), phases=phases, operators=rows)

    def with_table(**changes: Any) -> Analysis:
        return replace(passes, tables=(replace(TableGradient(lookup, 1000, 20.0, 0.03), **changes),))

    assert found(passes) == []
    assert found(with_table()) == ["table-gradient"]
    finding = first(with_table())
    assert finding.share == pytest.approx(0.6 * 0.03 / 0.04), "three quarters of the backward pass"
    assert [site.line for site in finding.sites] == [9, SITE.line]
    assert finding.gains[0].is_least, "the update becomes cheaper too"
    assert "A step looks up 20 rows, and the table has 1,000." in finding_text(finding).evidence
    made = {lookup.place: (MadeObject(Site("net.py", 5, ""), "GRU"), MadeObject(table, "Embedding"))}
    assert first(replace(with_table(), made=made)).sites[0] == table
    assert found(with_table(taken=300.0)) == [], "a gradient of these rows is hardly smaller"


def test_gradients_that_no_optimizer_uses() -> None:
    backward = Phase("backward", 0.06, 0.6, 0.6, 0.6, SITE)
    passes = replace(step(compute=1.0), phases=(backward,))
    unused = {
        "file": "train.py", "line": 50, "function": "main", "tensors": 20, "bytes": 4e6,
        "largest": [512, 64], "share": 0.9, "assumed": 0.01,
    }  # fmt: skip
    optimizer = {"class": "torch.optim.sgd.SGD", "file": "train.py", "line": 40, "function": "main"}

    def with_unused(**changes: Any) -> Analysis:
        return with_facts(passes, unused_gradients=unused | changes, optimizers=[optimizer])

    assert found(passes) == []
    assert found(with_unused()) == ["unused-gradients"]
    finding = first(with_unused())
    assert (finding.share, finding.confidence) == (pytest.approx(0.54), Confidence.MEDIUM)
    assert [site.line for site in finding.sites] == [50, 40]
    assert finding.costs == pytest.approx({"compute": 0.054})
    assert (finding.gains[0].method, finding.gains[0].is_least) == (GainMethod.BOUND, True)
    assert "The shape of the largest one is 512 × 64." in finding_text(finding).evidence
    assert not any("zero_grad" in sentence for sentence in finding_text(finding).evidence)
    text = finding_text(first(with_unused(discarded=6)))
    assert "zero_grad" in text.evidence[1]
    assert text.fix.startswith("Call detach() on what the modules with these 6 parameters give to the loss")
    assert first(with_unused(assumed=0.4)).gains[0].method is GainMethod.ESTIMATE
    assert found(with_unused(share=0.05)) == [], "too little time"
    assert found(with_facts(with_unused(), device="cuda")) == [], "not known where a pass waits"
    for reason in (Notice("large-graph", {"functions": 12_000}), Notice("sharded-parameters")):
        given_up = {"not_judged": {"code": reason.code, "values": reason.values}}
        (told,) = find(with_facts(passes, unused_gradients=given_up))[1]
        assert (told.rule.name, told.reason) == ("unused-gradients", reason)


def test_hooks_that_compute_statistics() -> None:
    hook = {"file": f"/project/{SITE.file}", "line": 3, "function": "observe.<locals>.hook", "is_outside": True}
    inner = replace(SITE, function="observe.<locals>.hook.<locals>.<genexpr>")
    line = LineCost(inner, "", 0.04, 0.4, 0.35, 0.45, 200, {"compute": 0.03, "core": 0.01})
    analysis = replace(step(compute=0.98, core=0.02), lines=(line,))

    def with_hook(**changes: Any) -> Analysis:
        return with_facts(analysis, module_hooks=[hook | changes])

    assert found(analysis) == []
    assert found(with_hook()) == ["module-hooks"]
    assert first(with_hook()).costs == pytest.approx({"compute": 0.03})
    assert first(with_hook()).gains[0].is_most
    assert found(with_hook(is_outside=False)) == [], "it may compute a part of the loss"
    assert found(with_hook(function="observe")) == ["module-hooks"]
    either = with_facts(analysis, module_hooks=[hook, hook | {"line": 9, "function": "other"}])
    assert first(either).values["hooks"] == 1, "the other one takes no time"
    lambdas = replace(analysis, lines=(replace(line, site=replace(SITE, function="<lambda>")),))
    for number, rules in ((SITE.line, ["module-hooks"]), (SITE.line + 1, [])):
        assert found(with_facts(lambdas, module_hooks=[hook | {"line": number, "function": "<lambda>"}])) == rules
    assert found(with_hook(function="other")) == found(with_hook(file="/project/other.py")) == []


def test_metrics_of_each_step() -> None:
    sources = {
        3: "sizes = p.grad.abs()",
        4: "low, high = torch.quantile(sizes, levels)",
        5: "curves.append((low.item(), high.item()))",
        6: "scaled = sizes * 2",
    }
    sites = {number: Site("watch.py", number, "look", source=source) for number, source in sources.items()}
    lines = tuple(
        LineCost(site, "", 0.01 * number, 0.1 * number, 0.08 * number, 0.12 * number, 100, {"compute": 0.01 * number})
        for number, site in sites.items()
    )
    rows = tuple(
        OperatorLine(site, False, "", 10, line.seconds_per_step, 0, 0.0)
        for site, line in zip(sites.values(), lines, strict=True)
    )
    read = CallSite(sites[5], "might_sync", 20.0, 1e-4, 0.0, 0.0, "item")
    analysis = replace(step(compute=1.0), lines=lines, operators=rows, call_sites=(read,))
    assert found(analysis) == ["metrics-in-loop"]
    assert first(analysis).costs == pytest.approx({"compute": 0.04 + 0.05}), "what is read"
    assert first(analysis).sites[0].line == 5
    assert first(analysis).gains[0].is_most
    for other in (
        replace(analysis, call_sites=()),
        replace(analysis, call_sites=(replace(read, operation="int"),)),  # an index
        replace(analysis, call_sites=(replace(read, calls_per_step=0.1),)),  # work of every tenth step
        replace(analysis, lines=tuple(replace(line, is_outside_torch=True) for line in lines)),  # a simulator
        replace(analysis, operators=(*rows, *(replace(row, is_backward=True) for row in rows))),  # the loss
        replace(analysis, operators=tuple(replace(row, caller="optimizer") for row in rows)),
        replace(analysis, phases=(Phase(Stage.EVALUATION, 0.9, 0.9, 0.9, 0.9, sites[3], "look"),)),
        replace(
            analysis,
            library=tuple(LibraryFunction("torch/nn/modules/module.py", "Module._call_impl", line) for line in lines),
        ),
        replace(
            analysis,
            library=tuple(LibraryFunction("torch/nn/utils/clip_grad.py", "clip_grad_norm_", line) for line in lines),
        ),
        # every tenth step reads many values
        replace(analysis, spikes=Spikes(9, 90, 10, 9.0, 0.9, (SpikeLine(sites[5], 1.0, "look"),), 60, enough=True)),
    ):
        assert "metrics-in-loop" not in found(other)
    parameters = tuple(LibraryFunction("torch/nn/modules/module.py", "Module.parameters", line) for line in lines)
    assert found(replace(analysis, library=parameters)) == ["metrics-in-loop"]
    metric = LibraryFunction("torchmetrics/metric.py", "Metric._wrap_compute.<locals>.wrapped_func", lines[1])
    inner = replace(metric, name="_auroc_compute", below=replace(lines[1], seconds_per_step=0.03))
    of_library = replace(analysis, call_sites=(), library=(metric, inner))
    assert first(of_library).costs == pytest.approx({"compute": 0.04}), "the outer function has all of it"
    for other in (
        replace(of_library, operators=tuple(replace(row, is_backward=True) for row in rows)),  # the loss
        replace(of_library, phases=(Phase(Stage.EVALUATION, 0.9, 0.9, 0.9, 0.9, sites[3], "look"),)),
        replace(of_library, library=(replace(metric, file="sklearn/metrics/pairwise.py"),)),
        replace(of_library, library=(replace(metric, file="scipy/stats/_distn_infrastructure.py"),)),
    ):
        assert "metrics-in-loop" not in found(other)


@pytest.mark.parametrize(
    ("computing", "reading", "other", "is_told"),
    [
        ("share = mask.mean()", "log(share.item())", "", True),
        ("share = mask.mean()", "log(share.item())", "loss = (mask * each).mean()", True),
        ("share = mask.mean()", "log(share.item())", "loss = (share * each).mean()", False),
        ("share = mask.mean()", "part = share.item()", "loss = part * each.mean()", False),
        ("norm = p.grad.norm()", "total += norm.item()", "p.grad.data.mul_(scale)", False),
        ("norm = p.grad.norm()", "total += norm.item()", "p.grad.zero_()", True),
        ("low = samples.quantile(0.1)", "log(low.item())", "", True),
        ("word = torch.multinomial(odds, 1)", "words.append(word.item())", "", False),
        ("seen, reward = env.step(action)", "total += reward.item()", "", False),
    ],
)
def test_numbers_that_a_step_needs(computing: str, reading: str, other: str, is_told: bool) -> None:
    sites = [Site("train.py", line, "train", source=text) for line, text in enumerate((computing, reading, other), 1)]
    line = LineCost(sites[0], "", 0.05, 0.5, 0.4, 0.6, 100, {"compute": 0.05})
    lines = line, replace(line, site=sites[2], seconds_per_step=0.001, share=0.01, low=0.0, high=0.02, categories={})
    rows = [OperatorLine(site, site.source.startswith("loss"), "", 1, 0.01, 0, 0.0) for site in sites]
    calls = (CallSite(sites[1], "might_sync", 1.0, 1e-6, 0.0, 0.0, "item"),)
    analysis = replace(step(compute=1.0), lines=lines, operators=tuple(rows), call_sites=calls)
    assert ("metrics-in-loop" in found(analysis)) is is_told


@pytest.mark.parametrize(
    ("source", "function", "name"),
    [
        ("self.keys = torch.cat([self.keys[n:], keys.detach()])  # a queue", "Bank.push", "self.keys"),
        ("history = pd.concat([history, row], ignore_index=True)", "main", "history"),
        ("losses = np.append(losses, loss.item())", "main", "losses"),
        ("seen[name] = numpy.concatenate((seen[name], new))", "main", "seen[name]"),
        ("self.queue = torch.cat([keys, self.queue], dim=0)[: self.size].clone()", "MoCo.enqueue", "self.queue"),
        ("features = torch.cat([features, self.conv(features)], 1)", "Dense.grow", ""),
        ("self.cache = torch.cat([self.cache, x])", "Decoder.forward", ""),
        ("both = np.concatenate((left, right))", "main", ""),
        ("self.keys = self.keys.append(1)", "main", ""),
        ("features = th.cat([features, skip], 1)", "decode", ""),
        ("names = np.delete(names, 0)", "main", ""),
        ("self.keys = torch.cat([", "main", ""),
    ],
)
def test_data_appended_by_copies(source: str, function: str, name: str) -> None:
    line = LineCost(Site("train.py", 5, function, source), "", 0.04, 0.4, 0.35, 0.45, 200, {"compute": 0.04})
    analysis = replace(step(compute=1.0), lines=(line,))
    assert found(analysis) == (["repeated-concatenation"] if name else [])
    if name:
        text = finding_text(first(analysis))
        assert text.evidence[0] == f"40% of each step is making a new copy of {name} with more in it."
        assert text.evidence[1] == f"All of it is at train.py:5, in {function}(): `{source}`."
        is_variable = name in ("history", "losses")
        assert first(analysis).confidence is (Confidence.MEDIUM if is_variable else Confidence.HIGH)


def test_graph_breaks_cost_an_unknown_time() -> None:
    breaks = [{"file": "train.py", "line": line, "function": "forward"} for line in (30, 40)]
    broken = with_facts(step(compute=1.0), graph_breaks=breaks, compile="inductor")
    assert found(broken) == ["graph-breaks"]
    assert [site.line for site in first(broken).sites] == [30, 40]
    assert first(broken).gains == ()
    assert found(with_facts(step(compute=1.0), graph_breaks=breaks)) == [], "the program compiles nothing itself"


def test_gradients_synchronized_more_often_than_the_optimizer_steps() -> None:
    waiting = step(compute=0.6, ranks=0.4)
    assert found(waiting) == []
    repeated = with_measures(waiting, repeated_gradient_syncs_per_step=3.0)
    assert found(repeated) == ["gradient-sync-in-accumulation"]
    assert first(repeated).share == pytest.approx(0.3), "one of four remains"
    assert found(with_measures(waiting, repeated_gradient_syncs_per_step=0.02)) == []
    for number, line in ((5, 5), (9, None)):  # the forward pass decides, and comes before the backward pass
        cell = Cell(
            *(0, MAIN, LedgerPeriod.STEPS, "forward", "compute", Owner.TORCH, "", None, "", Recurrence.EACH, 0.0),
            *(1.0, 1.0, 1.0, 9.0), callers=frozenset({(SITE.file, number)}),
        )  # fmt: skip
        ledger = Ledger((cell,), {(0, MAIN, LedgerPeriod.STEPS): 10.0}, steps={MAIN: 10})
        found_line = forward_before(StepCosts(replace(repeated, ledger=ledger)), replace(SITE, line=8))
        assert (found_line and found_line.line) == line
    on_device = replace(device_step(idle("python", 0.01)), device_parts=(DevicePart("communication", "", 0.6, 0.4),))
    assert found(with_measures(on_device, repeated_gradient_syncs_per_step=1.0)) == [
        "exposed-communication", "gradient-sync-in-accumulation*",
    ]  # fmt: skip


def test_memory_that_the_kernel_gives_anew() -> None:
    pages = {"page_faults": 16_384.0, "kernel_time": 0.024}
    churning = with_measures(step(compute=1.0), **pages)
    assert found(churning) == ["allocation-churn"]
    assert first(churning).share == pytest.approx(0.24)
    assert "67.1 MB" in finding_text(first(churning)).evidence[0]
    assert found(with_measures(step(compute=1.0), page_faults=5_000.0, kernel_time=0.024)) == [], "small blocks"
    few = first(with_measures(step(compute=1.0), page_faults=10_000.0, kernel_time=0.09))
    assert few.share == pytest.approx(0.2), "the kernel does something else too"
    assert found(with_measures(churning, memory_growth=60e6)) == [], "it keeps what it gets"
    reading = with_measures(step(main_process("dataset", 0.3), use=ALONE, input=0.3, compute=0.7), **pages)
    assert "allocation-churn" not in found(reading), "a file may be mapped"
    busy = step(main_process("dataset", 0.24), use=ALONE, input=0.06, compute=0.24, core=0.7)
    assert "allocation-churn" not in found(with_measures(busy, **pages)), "as on a quiet machine"
    compiling = replace(churning, phases=(Phase(Stage.COMPILE, 0.05, 0.5, 0.5, 0.5, SITE),))
    assert found(compiling) == []


@pytest.mark.parametrize(
    ("seconds", "lines"), [((0.06, 0.03, 0.01), [1, 2]), ((0.095, 0.0, 0.0), [1]), ((0.05, 0.02, 0.01), [])]
)
def test_memory_has_lines_where_most_of_its_time_must_lie_in_them(seconds: tuple[float, ...], lines: list[int]) -> None:
    churning = with_measures(step(compute=1.0), page_faults=16_384.0, kernel_time=0.024)
    costs = tuple(
        LineCost(Site("train.py", number, "f"), "", each, 10 * each, 9 * each, 11 * each, 50, {"compute": each})
        for number, each in enumerate(seconds, 1)
    )
    assert [site.line for site in first(replace(churning, lines=costs)).sites] == lines
    copying = tuple(replace(line, site=replace(line.site, source="a = torch.cat([a, b])")) for line in costs)
    copies = [site.line for site in first(replace(churning, lines=copying)).sites]
    assert copies == (lines or [1, 2]), "the third one is small"


def test_a_busy_worker_limits_what_more_batches_ahead_can_give() -> None:
    late = step(
        main_process("waiting for the workers", 0.5), worker("waiting for an index", 0.4), worker("dataset", 0.6),
        use=replace(BUSY, busiest_worker=0.78), input=0.5, compute=0.5,
    )  # fmt: skip
    assert found(late) == ["starved-prefetch"]
    assert first(late).gains[0].factor == pytest.approx(1 / 0.78, rel=0.01)
    crowded = replace(late, breakdown=step(input=0.5, compute=0.2, core=0.3).breakdown)
    assert first(crowded).gains[0].factor == pytest.approx(1 / 0.78, rel=0.01)
    assert found(replace(late, loader=replace(BUSY, busiest_worker=0.79))) == ["starved-prefetch"]
    uneven = replace(late, loader=replace(BUSY, busiest_worker=0.99))
    assert found(uneven) == ["slow-dataset-item"]


def test_products_without_tensor_cores() -> None:
    analysis = replace(device_step(idle("python", 0.01)), float32_products=0.4)
    for name, expected in (
        ("NVIDIA A100-PG509-200", True), ("Tesla V100-DGXS-32GB", True), ("NVIDIA GeForce RTX 2080 Ti", True),
        ("NVIDIA H100 80GB HBM3", True), ("NVIDIA GeForce GTX 1080", False), ("AMD Instinct MI300X", False),
        ("device 0", False),
        *((name, True) for name in (
            "Tesla V100-SXM2-16GB", "Quadro GV100", "NVIDIA TITAN V", "Tesla T4", "NVIDIA T4G", "Quadro RTX 4000",
            "NVIDIA A10G", "NVIDIA A2", "NVIDIA A40", "NVIDIA A800-SXM4-80GB", "NVIDIA RTX A2000", "NVIDIA L2",
            "NVIDIA L4", "NVIDIA L20", "NVIDIA L40S", "NVIDIA H20", "NVIDIA H200", "NVIDIA GH200 480GB",
            "NVIDIA B200", "NVIDIA GB200", "NVIDIA GB10", "NVIDIA RTX 2000 Ada Generation",
        )),
        *((name, False) for name in (
            "NVIDIA T400", "NVIDIA T400 4GB", "NVIDIA T600", "NVIDIA T1000", "NVIDIA T1200 Laptop GPU",
            "Quadro T1000", "Quadro T2000", "NVIDIA GeForce GTX 1650", "Tesla P100-PCIE-16GB", "Tesla P4",
            "Quadro GP100", "Quadro P2000", "NVIDIA TITAN Xp",
        )),
    ):  # fmt: skip
        there = replace(analysis, info=replace(analysis.info, devices=({"name": name},)))
        assert ("precision-unused" in found(there)) is expected, name
    assert first(replace(there, info=replace(there.info, devices=({"name": "NVIDIA A10"},)))).gains == ()
    assert found(replace(analysis, float32_products=0.1)) == []
    # the finding is about the run: of 100 s it has 40% of 200 steps of 0.1 s
    ended = replace(there.info, begin=1, end=1 + 100 * 10**9, devices=({"name": "NVIDIA A10"},))
    whole = first(with_measures(replace(there, info=ended), steps=200))
    assert (whole.seconds, whole.share) == pytest.approx((8.0, 0.08))


@pytest.mark.parametrize(
    ("starts", "words"),
    [
        (2.0, "Starts of the loader in each step: 2."),
        (1.0, "They are started once in 1 step."),
        (0.25, "They are started once in 4 steps."),
    ],
)
def test_how_often_workers_are_started(starts: float, words: str) -> None:
    use = LoaderUse(max(2.0, 2 * starts), starts, 2, around_starts=0.05)
    assert words in evidence(step(main_process("loader start", 0.5), worker("dataset", 0.1), use=use, input=0.5))


def test_a_tokenizer_in_a_loader_beside_a_little_other_input() -> None:
    def text(*others: InputPart) -> Analysis:
        return step(main_process("tokenize", 0.5), *others, use=ALONE, input=0.5, compute=0.5)

    marked = main_process(MARKED_DATA, 0.001, "inline")
    assert "inline-tokenization*" in found(text())
    assert "inline-tokenization*" in found(text(marked))


def test_a_line_loses_the_time_that_a_claim_has() -> None:
    analysis = step(waiting=0.5, input=0.5)
    board = Board(StepCosts(analysis))
    wants = board.wants(Claim({"input": exactly(0.05)}, (SITE,)))
    board.take("a-rule", wants)
    (line,) = Rest(board).lines
    assert line.seconds_per_step == pytest.approx(0.05)
    assert mostly_waits(line)
    assert not mostly_waits(replace(line, seconds_per_step=0.11)), "before, half of it was input"


def test_why_a_finding_beside_an_unseen_device_is_not_sure() -> None:
    unseen = next(each for each in causes(with_facts(step(log=0.5, compute=0.5), device="cuda")))
    assert unseen.low < unseen.share
    assert doubt_text(unseen) == "whether the device was busy meanwhile was not recorded"
    few = replace(unseen, values={})
    assert doubt_text(few) == "too few stack samples to be sure"


@pytest.mark.parametrize(
    ("operation", "source", "words"),
    [
        ("item", "loss.item()", ""),
        ("item", "print(f'{loss.item():.3f}')", ""),
        ("print", "bar.update(loss=loss)", ""),
        ("bool", "if valid == 0:", "cannot read it less often"),
        ("bool", "elif mask.any():", "cannot read it less often"),
        ("int", "for begin in range(0, padded, CHUNK):", "cannot read it less often"),
        ("bool", "longest = max(lengths)", "tensor.amax()"),
        ("bool", "out = encoder(x, mask=mask)", "is_causal=True"),
        ("bool", "out = route(x, mask=mask)", "one of its arguments"),
        ("item", "right = (decoder_out == y).float().mean().item()", ""),
        ("item", "total.add_(loss.item())", ""),
        ("item", "scaler.step(optimizer)", "bfloat16"),
        ("item", "optimizer.step()", "one of its arguments"),
        ("repeat_interleave", "mixed = plan.spread(gain, counts)", "output_size"),
        ("bool", "norm = clip_grad_norm_(weights, 5.0, error_if_nonfinite=True)", "error_if_nonfinite"),
        ("mask index", "share = weights[mask]", ""),
        ("repeat_interleave", "return torch.repeat_interleave(table, counts, output_size=rows)", "output_size"),
        ("item", "turned.mul_((slope.norm() / turned.norm()).item())", "Leave out item()"),
        ("item", "x.add_(y, alpha=rate.item())", ""),
        ("backward of mask index", "loss.backward()", ""),
        ("sub", "turned = slope.sub(flat, alpha=share)", "a - b * factor"),
        ("_foreach_add_", "torch._foreach_add_(weights, steps, alpha=rate)", "a - b * factor"),
        ("slice", "columns = [values[:, begin:end] for begin, end in borders]", "bounds of slices"),
        ("index", "row = table[number]", "one dimension"),
        # lines that only look alike
        ("item", "values = [x[i].item() for i in range(n)]", ""),
        ("item", "shown = loss.item() if step % 50 == 0 else 0.0", ""),
        ("item", "values = [each.item() for each in losses if each is not None]", ""),
        ("item", "norm = clip_grad_norm_(weights, 1.0, error_if_nonfinite=False).item()", ""),
        ("item", "mean = x.repeat_interleave(2).mean().item()", ""),
        ("item", "if loss.item() > limit:", "cannot read it less often"),
    ],
)
def test_the_cure_of_a_read_is_that_of_its_line(operation: str, source: str, words: str) -> None:
    cure = cure_of_read(operation, source)
    assert (cure is None) == (not words)
    assert words in (cure or "")


def test_the_cure_of_a_read_in_a_library_is_that_of_its_line_first() -> None:
    source = "batch = FragmentBatch(columns, lengths)"
    assert "built-in" in (cure_of_read("bool", source, "self.longest = int(max(lengths))") or "")
    assert "one of its arguments" in (cure_of_read("item", source, "value = rate.item()") or "")
    assert "output_size" in (cure_of_read("repeat_interleave", source, "return spread(x)") or "")


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("mean = norm.running_mean.to(x.device)", "If norm.running_mean does not change"),
        ("rows = [torch.as_tensor(each).cuda() for each in found]", "Stack all of these values"),
        ("x = x.to(device)", ""),
        ("batch = batch.cuda()", ""),
        ("ids = batch.input_ids.to(device)", ""),
        ("x = torch.tensor([f(word) for word in words], device=device)", ""),
    ],
)
def test_the_cure_of_a_copy_is_that_of_its_line(source: str, words: str) -> None:
    cure = cure_of_copy(source)
    assert (cure is None) == (not words)
    assert words in (cure or "")


def test_workers_that_compute_with_several_threads() -> None:
    parts = worker("dataset", 0.9), worker("waiting for an index", 0.05), WAITS
    crowded = LoaderUse(1.0, 0.0, 2, worker_cpu=0.8, worker_core_wait=0.5, free_cores=0.0)
    run = step(*parts, use=crowded, input=0.6, compute=0.4)
    assert "threads-in-workers" in found(run)
    finding = next(each for each in causes(run) if each.rule.name == "threads-in-workers")
    assert finding.gains[0].is_most
    assert finding.gain == pytest.approx(1 / 0.4)
    one = replace(crowded, worker_core_wait=0.2)
    assert "threads-in-workers" not in found(replace(run, loader=one)), "one thread can run and wait for 100%"
    alone = replace(crowded, worker_cpu=1.2, worker_core_wait=0.05)
    assert "threads-in-workers" not in found(replace(run, loader=alone)), "they have the cores"
