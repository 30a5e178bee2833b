"""Facts about programs: whose code lies where, what they compute in, and what they set before their first steps."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from profiler.agent.hooks import facts, settings, tensors
from profiler.agent.patching import STATE
from profiler.agent.recorder import Recorder
from profiler.run.tables import BoundaryKind, CallKind
from tests.fakes.programs import ROOT
from tests.fakes.watched import regions, watched

TORCH = """
import sys
from types import SimpleNamespace
sys.path.insert(0, {root!r})
from profiler.agent.patching import STATE
from profiler.agent.hooks.facts import PLUGIN
known = {{}}
STATE.recorder = SimpleNamespace(add_hook_facts=known.update, on_step=[])
torch = SimpleNamespace(
    __name__="torch", __version__="2", __file__="/src/torch/__init__.py", cuda=SimpleNamespace(_lazy_call=lambda _: 0)
)
PLUGIN.install(torch)
import json
print(json.dumps(known))
"""
"""A module of this text is torch, as far as the hook asks."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mine").mkdir()
    (tmp_path / "fake_torch.py").write_text(TORCH.format(root=str(ROOT)))
    (tmp_path / "mine" / "__init__.py").write_text("")
    (tmp_path / "mine" / "train.py").write_text(
        "def main():\n    import fake_torch\nif __name__ == '__main__':\n    main()"
    )
    (tmp_path / "early").mkdir()
    (tmp_path / "early" / "__init__.py").write_text("import fake_torch")
    (tmp_path / "early" / "train.py").write_text("")
    (tmp_path / "train.py").write_text("from mine.train import main\nmain()")
    (tmp_path / "start").write_text("from mine.train import main\nmain()")
    return tmp_path


@pytest.mark.parametrize(
    ("start", "main"),
    [
        (("-m", "mine.train"), "mine"),
        (("-m", "early.train"), "early"),
        (("start",), "mine"),
        (("train.py",), None),
        (("-c", "import fake_torch"), None),
        (("-m", "cProfile", "-o", "profile", "train.py"), None),
    ],
)
def test_the_users_package(folder: Path, start: tuple[str, ...], main: str | None) -> None:
    done = subprocess.run(
        [sys.executable, *start],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(folder)},
    )
    known = json.loads(done.stdout)
    assert (known.get("main"), known["torch_folder"]) == (main, "/src/torch")
    assert known["package"] == str(ROOT / "profiler")


def test_what_numbers_are_computed_in_and_by_what_they_are_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    optimizer = pytest.importorskip("torch.optim.optimizer")
    monkeypatch.setattr(torch, "compile", lambda model, **options: model)  # the real one imports for 15 s
    with watched(tmp_path, (facts.PLUGIN, torch), (facts.PLUGIN, optimizer), level="light"):
        assert STATE.recorder is not None
        known = STATE.recorder.hook_facts
        with torch.autocast("cpu", enabled=False):
            pass
        assert not known.keys() & {"autocast", "compile", "parameter_dtype"}
        parameters = [torch.nn.Parameter(torch.zeros(1, dtype=dtype)) for dtype in (torch.float64, torch.bfloat16)]
        torch.optim.SGD(parameters, lr=0.1)
        assert known["parameter_dtype"] == "bfloat16, float64"
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert torch.is_autocast_enabled("cpu")
        assert known["autocast"] == "bfloat16"
        torch.compile(len, disable=True)
        assert "compile" not in known
        torch.compile(lambda x: x, backend="eager")
        torch.compile(lambda x: x, mode="reduce-overhead")
        assert known["compile"] == "eager, inductor reduce-overhead"


def test_facts_of_the_first_steps_are_read_when_the_program_has_set_them(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    optimizer = pytest.importorskip("torch.optim.optimizer")
    with watched(tmp_path, (facts.PLUGIN, torch), (facts.PLUGIN, optimizer), level="light"):
        recorder = STATE.recorder
        assert recorder is not None
        double, single = (torch.nn.Parameter(torch.zeros(size)) for size in (3, 1))
        made = torch.optim.SGD([double, single], lr=0.1)
        double.data = double.data.double()
        others = threading.Event()
        threading.Thread(target=others.wait, name="plotter", daemon=True).start()
        recorder.record_boundary(BoundaryKind.OPTIMIZER, "SGD")
        assert "torch_threads" not in recorder.hook_facts
        for _ in range(120):
            recorder.record_boundary(BoundaryKind.OPTIMIZER, "SGD")
        others.set()
        known = recorder.hook_facts
        assert known["torch_threads"] == torch.get_num_threads()
        assert known["cores"] == len(os.sched_getaffinity(0))
        assert "plotter" in known["python_threads"]
        assert known["float64_parameters"] == 0.75, made
        assert "anomaly_detection" not in known


def test_denormal_numbers_of_an_optimizer_are_seen(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    optimizer = pytest.importorskip("torch.optim.optimizer")
    with watched(tmp_path, (facts.PLUGIN, torch), (facts.PLUGIN, optimizer), level="light"):
        recorder = STATE.recorder
        assert recorder is not None
        weights = torch.nn.Parameter(torch.ones(100))
        adam = torch.optim.Adam([weights], lr=0.0)
        weights.grad = torch.full((100,), 1e-20)  # its square is denormal
        recorder.record_boundary(BoundaryKind.OPTIMIZER, "Adam")
        recorder.record_boundary(BoundaryKind.OPTIMIZER, "Adam")
        assert "denormal" not in recorder.hook_facts
        adam.step()
        recorder.on_mode.append(lambda: None)
        for _ in range(18):
            recorder.record_boundary(BoundaryKind.OPTIMIZER, "Adam")
        assert "denormal" not in recorder.hook_facts, "these operators would be counted"
        recorder.on_mode.clear()
        for _ in range(80):
            recorder.record_boundary(BoundaryKind.OPTIMIZER, "Adam")
        assert recorder.hook_facts["denormal"] == pytest.approx(1 / 3, abs=0.001), "of three tensors, one"


def test_looking_for_denormal_numbers_is_no_read_of_the_program(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    optimizer = pytest.importorskip("torch.optim.optimizer")
    hooks = (facts.PLUGIN, torch), (facts.PLUGIN, optimizer), (tensors.TENSORS, torch)
    with watched(tmp_path, *hooks) as loaded:
        recorder = STATE.recorder
        assert recorder is not None
        adam = torch.optim.Adam([torch.nn.Parameter(torch.ones(100))])
        adam.param_groups[0]["params"][0].grad = torch.ones(100)
        adam.step()
        for _ in range(120):
            recorder.record_boundary(BoundaryKind.OPTIMIZER, "Adam")
        assert torch.ones(2).tolist() == [1.0, 1.0]
        run = loaded()
    assert (run.calls["kind"] == CallKind.MIGHT_SYNC).sum() == 1, "the program's own"


def test_parameters_are_looked_at_in_the_first_steps_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    optimizer = pytest.importorskip("torch.optim.optimizer")
    looks: list[int] = []

    class Counting(torch.nn.Parameter):  # type: ignore[misc]
        def numel(self) -> int:
            looks.append(1)
            return int(super().numel())

    monkeypatch.setattr(facts, "_READ_EVERY_NS", 0)
    with watched(tmp_path, (facts.PLUGIN, torch), (facts.PLUGIN, optimizer), level="light"):
        recorder = STATE.recorder
        assert recorder is not None
        made = torch.optim.SGD([Counting(torch.zeros(1, dtype=torch.float64))], lr=0.1)
        for _ in range(100):
            recorder.record_boundary(BoundaryKind.OPTIMIZER, "SGD")
        before = len(looks)
        torch.use_deterministic_algorithms(True)
        try:
            for _ in range(20):
                recorder.record_boundary(BoundaryKind.OPTIMIZER, "SGD")
        finally:
            torch.use_deterministic_algorithms(False)
        assert before > 0, made
        assert len(looks) == before
        assert recorder.hook_facts["deterministic_algorithms"] is True, "switches are read on"
        assert recorder.hook_facts["fills_memory"] is True
        assert recorder.hook_facts["float64_parameters"] == 1.0


@pytest.mark.parametrize(("limit", "expected"), [(-1, {"garbage collection"}), (1 << 60, set())])
def test_a_long_garbage_collection_is_a_region(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int, expected: set[str]
) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(facts, "_LONG_COLLECTION_NS", limit)
    callbacks = list(gc.callbacks)
    with watched(tmp_path, (facts.PLUGIN, torch)) as loaded:
        gc.collect(0)
        assert set(regions(loaded())) == expected
    assert gc.callbacks == callbacks


def test_lines_that_collect_garbage_are_counted(tmp_path: Path) -> None:
    torch, collect = pytest.importorskip("torch"), gc.collect
    with watched(tmp_path, (facts.PLUGIN, torch)):
        for _ in range(5):
            gc.collect(0)
        assert STATE.recorder is not None
        (line,) = STATE.recorder.hook_facts["gc_calls"]
    assert (line["file"], line["count"]) == (__file__, 5)
    assert gc.collect is collect


def test_the_settings_of_optimizers_and_switches_that_are_off_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    optimizer = pytest.importorskip("torch.optim.optimizer")
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    monkeypatch.setenv("NCCL_DEBUG", "WARN")
    hooks = (facts.PLUGIN, torch), (facts.PLUGIN, optimizer), (settings.SETTINGS_HOOK, optimizer)  # both see it made
    with watched(tmp_path, *hooks, level="light"):
        recorder = STATE.recorder
        assert recorder is not None
        adam = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(3))], foreach=False)
        torch.autograd.set_detect_anomaly(True)
        try:
            for _ in range(2):
                recorder.record_boundary(BoundaryKind.OPTIMIZER, "AdamW")
            assert recorder.hook_facts["anomaly_detection"] is True
        finally:
            torch.autograd.set_detect_anomaly(False)
        for _ in range(20):
            recorder.record_boundary(BoundaryKind.OPTIMIZER, "AdamW")
        assert recorder.hook_facts["anomaly_detection"] is False
        with torch.autograd.set_detect_anomaly(True):  # as a program may do in each step
            pass
        for _ in range(80):
            recorder.record_boundary(BoundaryKind.OPTIMIZER, "AdamW")
        assert recorder.hook_facts["anomaly_detection"] is True
        monkeypatch.setattr(facts, "_READ_EVERY_NS", 0)
        recorder.record_boundary(BoundaryKind.OPTIMIZER, "AdamW")
        assert recorder.hook_facts["anomaly_detection"] is False, "it is read for as long as the program steps"
        (made,) = recorder.hook_facts["optimizers"]
        assert recorder.hook_facts["debug_variables"] == {"CUDA_LAUNCH_BLOCKING": "1"}
    assert (made["class"], made["foreach"], made["fused"]) == ("torch.optim.adamw.AdamW", False, None)
    assert (made["groups"], made["tensors"], made["elements"], made["devices"]) == (1, 1, 3, ["cpu"])
    assert (made["file"], made["variable"]) == (__file__, "adam")
    assert "adam = " in Path(__file__).read_text().splitlines()[made["line"] - 1]
    assert adam is not None


def test_a_forked_process_reads_facts_in_its_own_steps(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    with watched(tmp_path, (facts.PLUGIN, torch)):
        assert STATE.recorder is not None
        for _ in range(120):
            STATE.recorder.record_boundary(BoundaryKind.OPTIMIZER, "AdamW")
        child = os.fork()
        if not child:
            recorder = STATE.recorder = Recorder(tmp_path / "run", "standard")
            facts._read_in_fork()
            for _ in range(2):
                recorder.record_boundary(BoundaryKind.OPTIMIZER, "AdamW")
            os._exit(0 if recorder.hook_facts.get("torch_threads") else 1)
        assert os.waitpid(child, 0)[1] == 0


def test_groups_of_parameters_are_compared_without_their_tensors(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    optimizer = pytest.importorskip("torch.optim.optimizer")
    with watched(tmp_path, (facts.PLUGIN, torch), (facts.PLUGIN, optimizer)):
        assert STATE.recorder is not None
        rate = torch.tensor(0.1)
        parameters = [torch.nn.Parameter(torch.zeros(1)) for _ in range(4)]
        groups = [{"params": [each], "lr": rate, "weight_decay": 0.1 * (each is parameters[0])} for each in parameters]
        made = torch.optim.SGD(groups)
        for _ in range(2):
            STATE.recorder.record_boundary(BoundaryKind.OPTIMIZER, "SGD")
        (fact,) = STATE.recorder.hook_facts["optimizers"]
    assert (fact["groups"], fact["settings"]) == (4, 2)
    assert made.param_groups


def test_an_optimizer_that_a_library_makes_has_no_line(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    optimizer = pytest.importorskip("torch.optim.optimizer")
    code = compile("def make(cls, parameters):\n    return cls(parameters)", "/lib/site-packages/trainer/x.py", "exec")
    library: dict[str, Any] = {}
    exec(code, library)
    with watched(tmp_path, (facts.PLUGIN, torch), (facts.PLUGIN, optimizer), level="light"):
        made = library["make"](torch.optim.SGD, [torch.nn.Parameter(torch.zeros(3))])
        (settings,) = facts._optimizer_settings()
    assert settings["class"] == "torch.optim.sgd.SGD", made
    assert "line" not in settings


def test_lines_at_which_a_compiler_ends_a_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    def frame(file: str, line: int) -> SimpleNamespace:
        return SimpleNamespace(filename=file, lineno=line, name="forward")

    stacks = [
        [frame("/code/train.py", 9), frame("/code/model.py", 4)],
        [frame("/code/train.py", 9), frame("/code/model.py", 4)],
        [frame("/code/train.py", 9), frame("/lib/site-packages/torch/optim/sgd.py", 7)],
        [],
    ]
    reasons = [SimpleNamespace(user_stack=stack) for stack in stacks]
    monkeypatch.setitem(sys.modules, "torch._dynamo.utils", SimpleNamespace(graph_break_reasons=reasons))
    assert list(facts._graph_breaks()) == [{"file": "/code/model.py", "line": 4, "function": "forward"}]
    monkeypatch.setitem(sys.modules, "torch._dynamo.utils", SimpleNamespace())
    assert list(facts._graph_breaks()) == [], "of another version of torch"
