"""What a stack says of itself, on stacks as py-spy writes them."""

from __future__ import annotations

import pytest

from profiler.analyse.sampling.frames import Stack, classify_stack
from profiler.run.code_origin import UNKNOWN_FOLDERS, PackageFolders, code_owner, relative_path
from profiler.run.model import Site
from tests.recorded.builders import parse_site

SITE = "/v/lib/python3.11/site-packages/"
LIB = "/usr/lib/python3.11/"
HOOKS = "/opt/p/profiler/agent/hooks/"
LOADER = f"{SITE}torch/utils/data/dataloader.py:725:_BaseDataLoaderIter.__next__"
FETCH = f"{SITE}torch/utils/data/_utils/fetch.py:54:_MapDatasetFetcher.fetch"
MODULE = f"{SITE}torch/nn/modules/module.py:1789:Module._call_impl"
LINEAR = f"{SITE}torch/nn/modules/linear.py:134:Linear.forward"
STEP = f"{SITE}torch/optim/optimizer.py:530:Optimizer.profile_hook_step.<locals>.wrapper"
ADAM = f"{SITE}torch/optim/adam.py:227:Adam.step"
TIMED = f"{HOOKS}optimizers.py:109:_OptimizerSteps._outside.<locals>.closed"
NOTES = f"{SITE}torch/autograd/profiler.py:800:record_function.__exit__"
ITEM = f"{HOOKS}tensors.py:84:_waiting.<locals>.make.<locals>.wrapper"
INDEX = f"{HOOKS}tensors.py:190:_reading.<locals>.make.<locals>.wrapper"
ENGINE = (f"{SITE}torch/_tensor.py:623:Tensor.backward", f"{SITE}torch/autograd/__init__.py:395:backward")
TQDM = f"{SITE}tqdm/std.py:1181:tqdm.__iter__"


def stack(*frames: str, places: PackageFolders = UNKNOWN_FOLDERS) -> Stack:
    return classify_stack(tuple(parse_site(frame) for frame in frames), places)


@pytest.mark.parametrize(
    ("file", "kind"),
    [
        ("/home/someone/train.py", "user"),
        ("/home/someone/torch/train.py", "user"),
        ("/home/someone/profiler/run.py", "user"),
        ("<stdin>", "user"),
        ("<ipython-input-3>", "user"),
        ("<string>", "user"),
        ("<attrs generated init Batch>", "library"),
        (f"{SITE}torch/nn/functional.py", "torch"),
        ("/tmp/torchinductor_me/ab/cab.py", "torch"),
        (f"{SITE}torchvision/models/resnet.py", "library"),
        ("/usr/lib/python3/dist-packages/numpy/core.py", "library"),
        (f"{LIB}threading.py", "library"),
        ("python3.11/inspect.py", "library"),
        ("site-packages/torch/nn/functional.py", "torch"),
        ("site-packages/numba/core/types.py", "library"),
        ("<frozen runpy>", "library"),
        ("/v/bin/torchrun", "library"),
        (f"{HOOKS}loader.py", "ours"),
        (f"{SITE}profiler/agent/hooks/loader.py", "ours"),
        ("", "library"),
    ],
)
def test_whose_code_a_file_is(file: str, kind: str) -> None:
    assert code_owner(file) == kind


@pytest.mark.parametrize(
    ("file", "kind"),
    [
        ("/home/someone/profiler/marks.py", "user"),
        (f"{SITE}profiler/marks.py", "ours"),
        (f"{SITE}profiler/agent/recorder.py", "ours"),
        ("/src/pytorch/torch/nn/functional.py", "torch"),
        ("/src/pytorch/tools/build.py", "user"),
        (f"{SITE}mine/train.py", "user"),
        (f"{SITE}mine_too/train.py", "library"),
    ],
)
def test_what_the_program_says_of_its_packages_tells_more(file: str, kind: str) -> None:
    assert code_owner(file, PackageFolders(f"{SITE}profiler", "/src/pytorch/torch", "mine")) == kind


@pytest.mark.parametrize("folder", [HOOKS, f"{SITE}profiler/agent/hooks/"])
@pytest.mark.parametrize(
    "places", [UNKNOWN_FOLDERS, PackageFolders(ours=f"{SITE}profiler"), PackageFolders(ours="/opt/p/profiler")]
)
def test_hooks_cover_wherever_our_package_lies(folder: str, places: PackageFolders) -> None:
    if places.ours and places.ours not in folder:
        return
    result = {
        name: stack("t.py:8:main", f"{folder}{name}:84:{function}", places=places).stratum
        for name, function in (("tensors.py", "_waiting.<locals>.make.<locals>.wrapper"), ("loader.py", "_asked.ask"))
    }
    assert result == {"tensors.py": "call", "loader.py": "data"}


def test_a_source_tree_of_torch_is_torch() -> None:
    places = PackageFolders(torch="/src/pytorch/torch")
    tree = tuple(frame.replace(SITE, "/src/pytorch/") for frame in (MODULE, LINEAR))
    result = stack("t.py:5:main", *tree, places=places)
    assert (result.site.file, result.in_torch, result.phase) == ("t.py", True, "forward")
    assert result.calls == "torch.nn.modules.linear.Linear.forward"


def test_code_of_the_command_line_is_the_users_and_what_dataclasses_make_is_not() -> None:
    result = stack("<string>:1:<module>", "<string>:5:main", "<string>:2:__init__")
    assert (result.site.line, result.site.function) == (5, "main")


def test_paths_are_relative_to_the_folder_of_packages() -> None:
    assert relative_path(f"{SITE}torch/nn/functional.py") == "torch/nn/functional.py"
    assert relative_path(f"{LIB}logging/__init__.py") == "logging/__init__.py"


@pytest.mark.parametrize(
    ("frames", "cover", "doing", "phase"),
    [
        (("t.py:5:main",), "", "", "between"),
        (("t.py:5:main", LOADER, FETCH, "data.py:9:Data.__getitem__"), "data", "input", "data"),
        (("t.py:5:main", MODULE, LINEAR), "", "", "forward"),
        (("t.py:6:main", *ENGINE), "backward", "", "backward"),
        (("t.py:7:main", STEP, ADAM), "optimizer", "", "optimizer"),
        # before its hooks begin and after they end torch notes a name: the optimizer's, and not recorded
        (("t.py:7:main", STEP, NOTES, f"{SITE}torch/_ops.py:1208:__call__"), "", "", "optimizer"),
        (("t.py:7:main", STEP, ADAM, NOTES), "optimizer", "", "optimizer"),
        # a closure in an optimizer's step: forward and backward are no part of the optimizer's
        (("t.py:7:main", STEP, ADAM, TIMED, "t.py:3:closure"), "", "", "between"),
        (("t.py:7:main", STEP, ADAM, TIMED, "t.py:3:closure", MODULE, LINEAR), "", "", "forward"),
        (("t.py:7:main", STEP, ADAM, TIMED, "t.py:3:closure", *ENGINE), "backward", "", "backward"),
        # a model that backward runs again (checkpointing) is backward
        (("t.py:6:main", *ENGINE, MODULE, LINEAR), "backward", "", "backward"),
        (("t.py:8:main", ITEM), "call", "", "between"),
        (("t.py:5:main", LOADER, FETCH, INDEX), "data", "input", "data"),
        (("t.py:8:main", f"{LIB}logging/__init__.py:9:Logger.info"), "", "log", "between"),
        # a progress bar that hands items on is not logging, and what it does itself is
        (("t.py:5:main", TQDM, "data.py:4:batches"), "", "", "between"),
        (("t.py:5:main", TQDM, LOADER), "data", "", "data"),
        (("t.py:5:main", TQDM), "", "log", "between"),
        (("t.py:5:main", TQDM, f"{SITE}tqdm/std.py:1:tqdm.refresh"), "", "log", "between"),
        # an agent, or a library that watches, calls the whole program: that is not logging
        ((f"{SITE}wandb/agents/pyagent.py:300:_run_job", "t.py:5:main", MODULE, LINEAR), "", "", "forward"),
        (("t.py:1:main", f"{SITE}mlflow/utils/safety.py:3:patched", MODULE, LINEAR), "", "", "forward"),
        ((f"{SITE}wandb/agents/pyagent.py:300:_run_job", "t.py:5:main"), "", "", "between"),
        (("t.py:5:main", f"{SITE}wandb/run.py:3:log"), "", "log", "between"),
        # who makes data or formats a record calls the user to do that
        (("t.py:2:main", f"{SITE}datasets/arrow_dataset.py:5:Dataset.map", "t.py:3:tokens"), "", "input", "between"),
        (("t.py:8:main", f"{LIB}logging/__init__.py:9:Logger.info", "t.py:4:format"), "", "log", "between"),
        # the text of a tensor is for readers
        (
            ("t.py:9:main", f"{SITE}torch/_tensor.py:5:Tensor.__repr__", f"{SITE}torch/_tensor_str.py:7:_str"),
            "",
            "log",
            "between",
        ),
        (("t.py:9:main", f"{SITE}torch/serialization.py:900:save"), "checkpoint", "", "between"),
        (("t.py:2:main", f"{SITE}datasets/arrow_dataset.py:5:Dataset.map"), "", "input", "between"),
        # reading an image is input, writing one is not
        (("t.py:2:main", f"{SITE}PIL/Image.py:5:Image.resize"), "", "input", "between"),
        (
            ("t.py:2:main", f"{SITE}PIL/Image.py:9:Image.save", f"{SITE}PIL/ImageFile.py:7:_encode_tile"),
            "",
            "",
            "between",
        ),
    ],
)
def test_what_frames_say(frames: tuple[str, ...], cover: str, doing: str, phase: str) -> None:
    result = stack(*frames)
    if cover == "data":
        doing = result.category  # within data nobody asks
    assert (result.stratum, result.category, result.phase) == (cover, doing, phase)


def test_the_innermost_line_of_the_user_and_what_it_calls() -> None:
    result = stack("t.py:5:main", LOADER, FETCH, "data.py:9:Data.__getitem__", f"{SITE}numpy/core/x.py:3:add")
    assert (result.site, result.calls) == (Site("data.py", 9, "Data.__getitem__"), "numpy.core.x.add")
    result = stack("t.py:5:main", MODULE, LINEAR)
    assert (result.site.line, result.calls, result.in_torch) == (5, "torch.nn.modules.linear.Linear.forward", True)
    result = stack("t.py:8:main", ITEM)
    assert (result.site.line, result.calls, result.in_torch) == (8, "", False), "our own frames are nobody's library"


def test_an_import_names_what_is_imported() -> None:
    frozen = "<frozen importlib._bootstrap>:1:_find_and_load"
    result = stack("t.py:1:<module>", frozen, f"{SITE}torch/__init__.py:9:<module>", frozen, f"{SITE}x/y.py:1:<module>")
    assert (result.site.line, result.calls) == (1, "import torch")


def test_without_a_line_of_the_user_the_outermost_frame_stands() -> None:
    result = stack("<frozen runpy>:88:_run_code", f"{SITE}lib/train.py:3:main", MODULE)
    assert result.site == Site("<frozen runpy>", 88, "_run_code")
    assert stack(f"{SITE}lib/train.py:3:main", LINEAR).site.file.endswith("lib/train.py")
    assert classify_stack(()).site == Site("", 0, "")
