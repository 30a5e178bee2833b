"""Lines of a program with suggested arguments: what is changed, and what is not sure enough to change."""

from __future__ import annotations

from dataclasses import replace

import pytest

from profiler.analyse.model.finding import Confidence, Finding, Place, RuleText
from profiler.diagnose.known_cures import cure_of_function, known_cure, largest_cure, line_of_cure
from profiler.report.cure_text import with_arguments
from profiler.report.finding_text import finding_text
from profiler.run.model import Site


@pytest.mark.parametrize(
    ("source", "name", "arguments", "expected"),
    [
        (
            "return torch.optim.AdamW(groups, lr=c.lr)  # built once",
            "AdamW", {"fused": True, "foreach": False},
            "return torch.optim.AdamW(groups, lr=c.lr, fused=True)",
        ),
        (
            "self.opt = AdamW(self.parameters(), foreach=True, fused=False)",
            "AdamW", {"fused": True, "foreach": False},
            "self.opt = AdamW(self.parameters(), foreach=False, fused=True)",
        ),
        (
            "loader = data.DataLoader(images, batch_size=8, num_workers=4, persistent_workers=True, prefetch_factor=2)",
            "DataLoader", {"num_workers": 0},
            "loader = data.DataLoader(images, batch_size=8, num_workers=0)",
        ),
        (
            "loader = DataLoader(images, 8)",
            "DataLoader", {"num_workers": 3, "persistent_workers": True},
            "loader = DataLoader(images, 8, num_workers=3, persistent_workers=True)",
        ),
        ("loader = DataLoader(", "DataLoader", {"num_workers": 3}, ""),
        ("loader = DataLoader(images, **options)", "DataLoader", {"num_workers": 3}, ""),
        ("pair = DataLoader(one), DataLoader(other)", "DataLoader", {"num_workers": 3}, ""),
        ("loader = make_loader(images)", "DataLoader", {"num_workers": 3}, ""),
    ],
)  # fmt: skip
def test_a_line_gets_the_suggested_arguments(
    source: str, name: str, arguments: dict[str, object], expected: str
) -> None:
    assert with_arguments(source, name, arguments) == expected


def at_line(source: str, inside: str = "", package: str = "", share: float = 0.4, **options: object) -> Finding:
    """A finding about Python code, of which one line takes `share` of each step."""
    site = Site("train.py", 7, "main", source)
    rule = RuleText("python-loop", "Python code takes time", (), "Replace loops.", code="x = 1", is_of_code=True)
    places = (Place(site, share, inside, package),)
    options = {"places": places, "known_cure": known_cure(places, 0.4), **options}
    return Finding(rule, 0.1, 0.4, 0.4, 0.4, Confidence.HIGH, (site,), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("source", "inside", "package", "words"),
    [
        ("json.dump(status, file)", "json.encoder._iterencode_dict", "", "Append what is new"),
        ("trainer.fit(model)", "lightning.pytorch.loggers.csv_logs.save", "lightning", "flush_logs_every_n_steps"),
        ("trainer.fit(model)", "lightning.pytorch.loops.fit_loop.advance", "lightning", "leave out callbacks"),
        ("trainer.train()", "transformers.trainer_callback.CallbackHandler.call_event", "transformers", "callbacks"),
        ("row = frame.iloc[index]", "pandas.core.series.Series.__init__", "pandas", "to_numpy()"),
        ("rows = generator.choice(size, 8, replace=False)", "", "", "integers(size, size=count)"),
        ("rows = np.random.choice(len(p), 32, p=p / p.sum())", "", "", "adds up all weights"),
        ("boxes = augment(boxes)", "augkit.boxes.area", "augkit", "its result depends only on the arguments"),
        ("boxes = augkit.clip(boxes)", "augkit.boxes.clip", "augkit", "what augkit.clip() returns depends only"),
        ("bar.update()", "barline.Bar.update", "barline", "Do it less often"),
        ("known = np.flatnonzero(np.isin(row, known))", "numpy.lib._isin", "numpy", "call NumPy once on whole arrays"),
        ("parts = m[row]", "scipy.sparse._index.IndexMixin.__getitem__", "scipy", "Take all rows of a batch"),
        ("handle.remove()", "torch.utils.hooks.RemovableHandle.remove", "", "If the list keeps its handles"),
        ("numbers = [names.index(name) for name in row]", "", "", "Make a dictionary of positions once"),
        ("kept = filter(lambda word: word in set(vocabulary), words)", "", "", "build a set of it once"),
        ("best = sorted(scores, reverse=True)[:10]", "", "", "torch.topk()"),
        ("os.fsync(file.fileno())", "", "", "power failure"),
        ("rest = sorted(scores)[:-1]", "", "", "Replace loops."),
        ("items[3]", "numba.core.typed", "", "Replace loops."),
        ("boxes = clip(boxes)", "", "", "Replace loops."),
        ("old.data = old.data * keep + new.data * (1.0 - keep)", "", "", "AveragedModel"),
        ("rates = torch.tensor([1.0, 2.0])", "", "", "register_buffer("),
        ("return torch.tensor(rows), torch.tensor(labels)", "", "", "arrays of NumPy"),
        # lines that only look alike
        ("file.write(json.dumps(row) + chr(10))", "json.encoder.JSONEncoder.encode", "", "Replace loops."),
        ("loss = F.cross_entropy(model(x), torch.arange(len(x)))", "", "", "Replace loops."),
        ("action = policy(torch.tensor(state))", "", "", "Replace loops."),
        ("p.data = p.data - rate * p.grad.data", "", "", "Replace loops."),
        ("y = model(x)", "transformers.integrations.sdpa_attention.forward", "transformers", "Replace loops."),
        ("trainer.train()", "transformers.models.bert.modeling_bert.forward", "transformers", "Replace loops."),
    ],
)
def test_what_is_known_of_the_function_takes_the_place_of_general_advice(
    source: str, inside: str, package: str, words: str
) -> None:
    text = finding_text(at_line(source, inside, package))
    assert words in text.fix
    assert bool(text.code) == (text.fix == "Replace loops."), "the code is that of the general advice"


def test_advice_for_a_loop_is_none_for_what_runs_once() -> None:
    place = Place(Site("train.py", 7, "main", "frame = load()"), 0.4, "pandas.core.frame.DataFrame.__init__", "pandas")
    assert known_cure((place,), 0.4)
    assert not known_cure((place,), 0.4, outside=True)
    unbound = Place(Site("train.py", 7, "main", "total = sum(mask)"), 0.4, "torch._tensor.Tensor.__iter__")
    assert "tensor.sum()" in known_cure((unbound,), 0.4, outside=True)


def test_a_line_with_less_than_half_of_the_time_decides_nothing() -> None:
    text = finding_text(at_line("json.dump(status, file)", share=0.1))
    assert text.fix == "Replace loops."


def test_the_evidence_names_the_line_its_function_and_its_code() -> None:
    (place,) = finding_text(at_line("boxes = augment(boxes)", "augkit.boxes.area", "augkit")).evidence
    assert place == "All of it is at train.py:7, mostly in augkit.boxes.area(): `boxes = augment(boxes)`."


LINE = Site("train.py", 3, "main", "run.watch(model)")


def test_a_hook_of_a_library_is_changed_where_it_was_registered() -> None:
    site = Site("train.py", 7, "main", "loss.backward()")
    text = finding_text(
        at_line(site.source, places=(Place(site, 0.3, "rl.watch", "rl", registered_at=LINE),), cure_site=LINE)
    )
    assert text.cure_site == LINE
    assert "hooks of rl" in text.fix
    assert text.evidence == (
        "75% of it is at train.py:7, mostly in rl.watch(), in a hook registered at train.py:3: `loss.backward()`.",
        "The line to change is train.py:3: `run.watch(model)`.",
    )


def test_what_calls_a_library_is_named_and_known() -> None:
    site, called_by = Site("train.py", 7, "main", "t.train()"), "transformers.trainer_utils.TrainerMemoryTracker.stop"
    places = (Place(site, 0.4, "", "psutil", called_by),)
    found = at_line(site.source, places=places, known_cure=known_cure(places, 0.4), cure_site=LINE)
    text = finding_text(found)
    assert "skip_memory_metrics" in text.fix
    assert text.evidence[0] == (f"All of it is at train.py:7, mostly in psutil, called by {called_by}(): `t.train()`.")
    assert text.cure_site == LINE


def test_the_line_that_made_what_advice_changes() -> None:
    lines = {"TrainingArguments": {"file": "/home/someone/train.py", "line": 3, "function": "main"}, "threads": LINE}
    cure = cure_of_function("transformers.trainer_utils.TrainerMemoryTracker.peak_monitor_func")
    assert line_of_cure(cure, lines, "/home/someone") == LINE
    assert line_of_cure(cure, {}, "/home/someone") is None
    assert line_of_cure(cure_of_function("wandb.integration.torch.log"), lines, "/home/someone") is None
    assert not cure_of_function("")


def test_a_cure_for_a_part_of_computing_is_told_at_its_line() -> None:
    average = Place(Site("train.py", 31, "follow", "old.data = old.data * keep + new.data * (1.0 - keep)"), 0.12)
    others = Place(Site("train.py", 40, "train", "loss.backward()"), 0.5)
    cured = largest_cure((others, average))
    assert (cured.share, cured.site) == (0.12, average.site)
    found = replace(at_line("loss.backward()", "", ""), rule=RuleText("compute", "", (), ""))
    found = replace(found, values={**found.values, "part_cure": cured.text}, cure_site=cured.site)
    text = finding_text(found)
    assert "AveragedModel" in text.fix
    assert text.cure_site == average.site
    assert not known_cure((others, average), 0.7), "it is no cure for most of it"


@pytest.mark.parametrize(
    ("function", "words"),
    [
        ("accelerate.utils.operations._gpu_gather", "Gather metrics only in the steps that log them"),
        ("torchmetrics.utilities.distributed.gather_all_tensors", "dist_sync_on_step=False"),
        ("lightning.fabric.utilities.distributed._sync_ddp", "on_epoch=True"),
    ],
)
def test_collectives_of_metrics(function: str, words: str) -> None:
    assert words in cure_of_function(function)
    assert not cure_of_function("accelerate.accelerator.Accelerator.backward"), "gradients must be exchanged"


def test_json_that_a_function_reads_and_writes_anew_is_one_cause() -> None:
    def place(line: int, source: str, share: float) -> Place:
        return Place(Site("train.py", line, "write_status", source), share)

    read, written = place(7, "events = json.load(file)", 0.3), place(9, "json.dump(events, file)", 0.2)
    assert "one line of JSON" in known_cure((read, written), 0.5)
    assert not known_cure((read,), 0.3), "it may be a dataset"


def test_what_is_compiled_once_has_its_advice_only_outside_of_usual_steps() -> None:
    name = "matplotlib.font_manager._load_fontmanager"
    assert "MPLCONFIGDIR" in cure_of_function(name, outside=True)
    assert not cure_of_function(name)
    assert not cure_of_function("matplotlib.font_manager.findfont", outside=True), "it runs at each drawing"
