"""The lines that change settings of torch are facts of a run; what these functions do stays the same."""

from __future__ import annotations

import inspect
import multiprocessing.process
import pickle
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from profiler.agent.hooks import settings
from profiler.agent.patching import STATE
from profiler.run.tables import MADE_BY, OF_THREAD, SETTINGS
from tests.fakes.watched import watched

torch = pytest.importorskip("torch")


def test_the_lines_that_change_settings_are_recorded(tmp_path: Path) -> None:
    modules = torch, torch.nn.modules.module, torch.profiler.profiler, torch.autograd.profiler
    threads = torch.get_num_threads()
    with watched(tmp_path, *((settings.SETTINGS_HOOK, module) for module in modules)):
        assert STATE.recorder is not None
        torch.autograd.set_detect_anomaly(False)
        torch.nn.Linear(2, 2).to("cpu")
        torch.set_default_dtype(torch.float32)
        torch.use_deterministic_algorithms(False)
        assert SETTINGS not in STATE.recorder.hook_facts, "none of them slows a program"
        for _ in range(2):
            model = torch.nn.Linear(2, 2).double()
            torch.set_num_threads(threads)
            torch.use_deterministic_algorithms(True, warn_only=True)
            torch.use_deterministic_algorithms(False)
            with torch.autograd.detect_anomaly(check_nan=False), torch.profiler.profile() as profile:
                model(torch.ones(1, 2, dtype=torch.float64))
        lines = STATE.recorder.hook_facts[SETTINGS]
        settings._lines.clear()
        made = torch.nn.Linear(2, 2).to(dtype=torch.float64)
        assert "made = " in source_of(STATE.recorder.hook_facts[SETTINGS]["float64"])
    assert made.weight.dtype is model.weight.dtype is torch.float64
    assert profile.key_averages()
    words = {
        "float64": ".double()",
        "threads": "set_num_threads(",
        "anomaly": "detect_anomaly(",
        "deterministic": "use_deterministic_algorithms(True",
        "profiler": "profile(",
    }
    assert set(lines) == set(words)
    for name, word in words.items():
        assert word in source_of(lines[name])


def test_the_line_that_starts_a_thread_is_recorded(tmp_path: Path) -> None:
    with watched(tmp_path, (settings.SETTINGS_HOOK, threading)):
        assert STATE.recorder is not None
        numbers = list[int | None]()
        beside = threading.Thread(target=lambda: numbers.append(threading.get_native_id()))
        beside.start()
        beside.join()
        with ThreadPoolExecutor(1) as pool:
            of_pool = pool.submit(threading.get_native_id).result()
        with pytest.raises(RuntimeError):
            beside.start()
        lines = STATE.recorder.hook_facts[SETTINGS]
    assert "beside.start()" in source_of(lines[f"{OF_THREAD}{numbers[0]}"])
    assert "pool.submit(" in source_of(lines[f"{OF_THREAD}{of_pool}"])
    assert len(lines) == 2


def source_of(place: dict[str, object]) -> str:
    assert place["file"] == __file__
    return Path(__file__).read_text().splitlines()[int(str(place["line"])) - 1]


class OfProgram(multiprocessing.Process):
    def __init__(self) -> None:
        super().__init__(target=len)


def test_the_only_line_that_makes_processes_is_recorded(tmp_path: Path) -> None:
    with watched(tmp_path, (settings.SETTINGS_HOOK, multiprocessing.process)):
        assert STATE.recorder is not None
        facts = STATE.recorder.hook_facts
        loader = torch.utils.data.DataLoader(torch.zeros(4), num_workers=1)
        assert len(list(loader)) == 4
        assert "processes" not in facts.get(SETTINGS, {}), "these are workers of a loader"
        made = [OfProgram() for _ in range(2)]
        assert "made = " in source_of(facts[SETTINGS]["processes"])
        assert f"processes{MADE_BY}" not in facts[SETTINGS], "the program made the process itself"
        other = multiprocessing.Process(target=len)
        assert "processes" not in facts[SETTINGS], "nothing tells which of them is slow"
    assert made[0].name != other.name


def test_a_process_with_a_function_of_no_module_is_made(tmp_path: Path) -> None:
    made: dict[str, object] = {}
    exec("def work(): pass", made)
    made["work"].__module__ = None  # type: ignore[assignment]
    with watched(tmp_path, (settings.SETTINGS_HOOK, threading), (settings.SETTINGS_HOOK, multiprocessing.process)):
        process = multiprocessing.Process(target=made["work"])  # type: ignore[arg-type]
        assert STATE.recorder is not None
        assert "process = " in source_of(STATE.recorder.hook_facts[SETTINGS]["processes"])
    assert process.exitcode is None, "it was made, and not started"


class Games:
    def __init__(self, count: int) -> None:
        self.all = [multiprocessing.Process(target=len) for _ in range(count)]


def test_the_line_that_makes_an_object_with_processes_is_recorded(tmp_path: Path) -> None:
    with watched(tmp_path, (settings.SETTINGS_HOOK, threading), (settings.SETTINGS_HOOK, multiprocessing.process)):
        assert STATE.recorder is not None
        games = Games(2)
        lines = STATE.recorder.hook_facts[SETTINGS]
    assert len(games.all) == 2
    assert "self.all = " in source_of(lines["processes"])
    assert "games = " in source_of(lines[f"processes{MADE_BY}"])


class OfUser(torch.nn.parallel.DistributedDataParallel):  # type: ignore[misc]
    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__(module)


def test_the_only_line_that_makes_an_object_with_arguments_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    transformers = pytest.importorskip("transformers")
    arguments = transformers.TrainingArguments
    monkeypatch.setattr(torch.nn.parallel.DistributedDataParallel, "__init__", lambda self, module: None)
    modules = sys.modules["transformers.training_args"], sys.modules["torch.nn.parallel.distributed"]
    before = inspect.signature(arguments)
    with watched(tmp_path, *((settings.SETTINGS_HOOK, module) for module in modules)):
        assert STATE.recorder is not None
        facts = STATE.recorder.hook_facts
        OfUser(torch.nn.Linear(2, 2))
        assert "OfUser(torch" in source_of(facts[SETTINGS]["DistributedDataParallel"]), "not a line of its class"
        made = arguments(str(tmp_path), use_cpu=True, report_to=[])
        assert "made = arguments(" in source_of(facts[SETTINGS]["TrainingArguments"])
        assert pickle.loads(pickle.dumps(made)) == made
        assert inspect.signature(arguments) == before
        with pytest.raises(TypeError, match="no_such_argument"):
            arguments(str(tmp_path), no_such_argument=1)
        arguments(str(tmp_path), use_cpu=True, report_to=[])
        assert "TrainingArguments" not in facts[SETTINGS], "nothing tells which of them counts"
