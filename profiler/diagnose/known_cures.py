"""Knows what helps against the time in some functions of libraries, of torch and of Python.

Each row names the functions, and the documentation or the thread that tells what helps. It holds wherever the function
takes most of a line's time, whatever the program does there.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from profiler.analyse.model.finding import Place
from profiler.core.syntax import line_nodes
from profiler.diagnose.model import MOST
from profiler.run.code_origin import relative_site
from profiler.run.model import Site


class KnownCure(NamedTuple):
    """What helps against the time in some functions."""

    text: str
    """What to do, as sentences."""
    inside: tuple[str, ...] = ()
    """Beginnings of the functions that take the time, as module and name."""
    calls: tuple[str, ...] = ()
    """What the line does, where that leaves no frame of its own (`_called_with`)."""
    anywhere: bool = False
    """Whether it holds for work outside of the steps too, which may occur once."""
    is_once: bool = False
    """Whether it holds only for work outside of the steps, or in one of them."""
    of: str = ""
    """The class whose arguments it changes, of which the recorder notes the line (`profiler.agent.hooks.settings`)."""

    def holds(self, *, outside: bool) -> bool:
        """Return whether it holds for work of the steps, or outside of them."""
        return self.anywhere or self.is_once is outside

    def is_about(self, function: str) -> bool:
        return bool(function) and function.startswith(self.inside)


_KNOWN: Final = (
    # https://lightning.ai/docs/pytorch/stable/extensions/generated/lightning.pytorch.loggers.CSVLogger.html
    KnownCure(
        "Let the logger write less often: CSVLogger(..., flush_logs_every_n_steps=...), which is 100 by default, and "
        "Trainer(..., log_every_n_steps=...), which is 50.",
        ("lightning.pytorch.loggers.csv_logs.", "lightning.fabric.loggers.csv_logs.",
         "pytorch_lightning.loggers.csv_logs."),
        of="CSVLogger",
    ),
    # https://lightning.ai/docs/pytorch/stable/api/lightning.pytorch.callbacks.TQDMProgressBar.html
    KnownCure(
        "Refresh the progress bar less often: Trainer(..., callbacks=[TQDMProgressBar(refresh_rate=50)]).",
        ("lightning.pytorch.callbacks.progress.", "pytorch_lightning.callbacks.progress."),
        of="Trainer",
    ),
    # https://huggingface.co/docs/transformers/debugging
    KnownCure(
        "Leave debug='underflow_overflow' out of TrainingArguments: its hooks read all weights, inputs and outputs of "
        "each module.",
        ("transformers.debug_utils.",),
        of="TrainingArguments",
    ),
    # https://huggingface.co/docs/transformers/main_classes/trainer: skip_memory_metrics
    KnownCure(
        "Pass skip_memory_metrics=True to TrainingArguments: the memory tracker polls in a thread.",
        ("transformers.trainer_utils.TrainerMemoryTracker",),
        anywhere=True,
        of="TrainingArguments",
    ),
    # https://huggingface.co/docs/transformers/main_classes/trainer: preprocess_logits_for_metrics
    KnownCure(
        "Let the evaluation keep less: Trainer(..., preprocess_logits_for_metrics=...), such as the argmax of the "
        "logits, or a smaller evaluation set.",
        ("transformers.trainer_pt_utils.nested_concat", "transformers.trainer_pt_utils.torch_pad_and_concatenate",
         "transformers.trainer_pt_utils.numpy_pad_and_concatenate"),
        anywhere=True,
        of="Trainer",
    ),
    # https://huggingface.co/docs/transformers/main_classes/trainer: logging_steps
    KnownCure(
        "Log less often: raise logging_steps in TrainingArguments.",
        ("transformers.integrations.integration_utils.",),
        of="TrainingArguments",
    ),
    # https://huggingface.co/docs/datasets/about_dataset_features
    KnownCure(
        "Store the data as arrays: give columns of nested lists the features Array2D or Array3D, and keep the result "
        "of with_format() that the training reads; or convert all items once to tensors.",
        ("datasets.formatting.", "datasets.features.", "datasets.table."),
        of="Dataset",
    ),
    # https://huggingface.co/docs/datasets/about_map_batch
    KnownCure(
        "Let the function take many rows at once: Dataset.map(..., batched=True), with which a fast tokenizer works on "
        "all of them; or use several processes by num_proc.",
        ("datasets.arrow_dataset.Dataset.map", "datasets.arrow_dataset.Dataset._map_single", "datasets.arrow_writer."),
        anywhere=True,
    ),
    # https://huggingface.co/docs/transformers/main_classes/tokenizer
    KnownCure(
        "Give the tokenizer many texts in one call, as in tokenizer(texts) or Dataset.map(..., batched=True), and "
        "tokenize before the training.",
        ("transformers.tokenization_utils_tokenizers.TokenizersBackend._", "transformers.tokenization_utils_fast._",
         "transformers.tokenization_utils_base.PreTrainedTokenizerBase.__call__",
         "transformers.tokenization_utils_base.PreTrainedTokenizerBase._"),
        anywhere=True,
    ),
    KnownCure(
        "This tokenizer is written in Python. Load the fast one where there is one, by "
        "AutoTokenizer.from_pretrained(), and compare a few texts. Give it many texts in one call, before the "
        "training.",
        ("transformers.tokenization_python.", "transformers.models.bert.tokenization"),
        anywhere=True,
    ),
    # https://huggingface.co/docs/accelerate/package_reference/accelerator: gather_for_metrics
    KnownCure(
        "Gather metrics only in the steps that log them: keep them on each rank in between, as tensors, and gather "
        "several of them in one call. All ranks must gather in the same steps.",
        ("accelerate.utils.operations._gpu_gather", "accelerate.utils.operations.gather",
         "accelerate.accelerator.Accelerator.gather"),
    ),
    # https://lightning.ai/docs/torchmetrics/stable/references/metric.html: dist_sync_on_step
    KnownCure(
        "Let metrics synchronize when they are computed, at the end of an epoch, and not in each step: leave "
        "dist_sync_on_step=False, or call update() in the steps.",
        ("torchmetrics.metric.Metric._sync_dist", "torchmetrics.utilities.distributed."),
    ),
    # https://lightning.ai/docs/pytorch/stable/extensions/logging.html: sync_dist
    KnownCure(
        "Log without sync_dist=True in each step, or log with on_step=False and on_epoch=True: each such value is a "
        "collective of its own.",
        ("lightning.fabric.utilities.distributed._sync_ddp", "lightning_fabric.utilities.distributed._sync_ddp"),
    ),
    # https://docs.wandb.ai/ref/python/watch
    KnownCure(
        "Watch less often, or not at all: wandb.watch(model, log_freq=...), in steps.", ("wandb.integration.torch.",)
    ),
    # https://pytorch.org/docs/stable/tensorboard.html
    KnownCure(
        "Write to TensorBoard every 50th step or so, and histograms less often still.",
        ("torch.utils.tensorboard.", "tensorboard."),
    ),
    # https://tqdm.github.io/docs/tqdm/
    KnownCure(
        "Refresh the bar less often: tqdm(..., mininterval=1), set_postfix(..., refresh=False).",
        ("tqdm.std.tqdm.refresh", "tqdm.std.tqdm.set_postfix", "tqdm.std.tqdm.display", "tqdm.std.Bar"),
    ),
    # https://lightning.ai/docs/torchmetrics/stable/pages/overview.html
    KnownCure(
        "Call metric.update() in each step instead of metric(), and metric.compute() once at the end of an epoch.",
        ("torchmetrics.metric.Metric.forward", "torchmetrics.metric.Metric._forward",
         "torchmetrics.metric.Metric._copy_state_dict"),
    ),
    # https://pandas.pydata.org/docs/user_guide/enhancingperf.html
    KnownCure(
        "Turn the columns into arrays once, as by frame[names].to_numpy(), and take items from these: pandas makes new "
        "objects for each row and for each value.",
        ("pandas.core.frame.", "pandas.core.generic.", "pandas.core.indexes.", "pandas.core.indexing.",
         "pandas.core.internals.", "pandas.core.series."),
    ),
    # https://pytorch.org/docs/stable/generated/torch.nn.utils.parametrize.cached.html
    KnownCure(
        "If the parametrized weight is used several times before one backward pass, as in a loop over time steps, run "
        "that forward pass within torch.nn.utils.parametrize.cached(), and the backward pass after it.",
        ("torch.nn.utils.parametrizations.", "torch.nn.utils.parametrize."),
    ),
    # https://pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html
    KnownCure(
        "Pass forward_sync_buffers=False to DistributedDataParallel (in older versions of torch "
        "broadcast_buffers=False), if the buffers are the same on all ranks, as constants are: it sends them from rank "
        "0 before each forward pass.",
        ("torch.nn.parallel.distributed.DistributedDataParallel._distributed_broadcast_coalesced",
         "torch.nn.parallel.distributed.DistributedDataParallel._sync_"),
        of="DistributedDataParallel",
    ),
    # https://pytorch.org/docs/stable/notes/ddp.html: buckets
    KnownCure(
        "If this line runs for each tensor, exchange all of them at once: in one flat tensor, or by "
        "DistributedDataParallel, which puts gradients into buckets and exchanges them during the backward pass.",
        ("torch.distributed.distributed_c10d.all_reduce",),
    ),
    # Tensor.__iter__ unbinds the tensor, and Python's sum, max, min and list call it
    KnownCure(
        "Use the tensor's own method, such as tensor.sum() or tensor.tolist(): Python's built-in functions make a "
        "tensor of each element.",
        calls=("sum(tensor)",),
        anywhere=True,
    ),
    # https://pytorch.org/docs/stable/generated/torch.nn.Module.html: register_buffer
    KnownCure(
        "If the result is the same in each step, make it once, such as in __init__ by register_buffer(..., "
        "persistent=False), and not in each forward pass.",
        calls=("constant tensor",),
    ),
    # https://pytorch.org/docs/stable/generated/torch.tensor.html: a list is read element by element
    KnownCure(
        "If these are lists, build arrays of NumPy instead, and make tensors of them by torch.from_numpy(), which "
        "shares their memory: torch.tensor() reads a list element by element.",
        calls=("tensor of a list",),
    ),
    # https://pytorch.org/docs/stable/optim.html: averaging of weights
    KnownCure(
        "Update all tensors at once: torch.optim.swa_utils.AveragedModel(model, "
        "multi_avg_fn=get_ema_multi_avg_fn(decay)), which averages buffers only with use_buffers=True.",
        calls=("average of tensors",),
    ),
    # https://numpy.org/doc/stable/reference/random/generated/numpy.random.choice.html
    KnownCure(
        "Draw by numpy.random.default_rng(), whose choice(..., replace=False, shuffle=False) does not permute all "
        "numbers, or draw with replacement, as by integers(size, size=count), which may draw an item twice.",
        calls=("choice without replacement",),
    ),
    # numpy/random/mtrand.pyx: choice() checks all of p, and sums it up, in each call
    KnownCure(
        "choice(p=...) adds up all weights in each call. If they stay the same, keep sums = weights.cumsum() and draw "
        "positions by numpy.searchsorted(sums, sums[-1] * rng.random(count), side='right'). If a few of them change in "
        "each step, keep their sums in a tree, as replay buffers do.",
        calls=("weighted choice",),
    ),
    # https://docs.python.org/3/howto/logging.html: optimization
    KnownCure(
        'Pass values as arguments, as in log.debug("%s", x), or ask log.isEnabledFor() first: an f-string makes its '
        "text also where the message is not shown.",
        calls=("formatted message",),
    ),
    # https://docs.python.org/3/library/json.html
    KnownCure(
        "Append what is new to the file, one line of JSON for each event, instead of writing all of it again; readers "
        "then read line by line. Or write it every 50th step or so.",
        calls=("JSON written anew",),
    ),
    # https://docs.python.org/3/tutorial/datastructures.html
    KnownCure(
        "If this is a list, index() searches it from its start each time. Make a dictionary of positions once, as by "
        "{item: number for number, item in enumerate(items)}, and look up in it; of equal items it has the last.",
        calls=("search in a list",),
        anywhere=True,
    ),
    KnownCure(
        "If what stands after `in` is the same for each test, build a set of it once, before the loop.",
        calls=("set built anew",),
        anywhere=True,
    ),
    # https://docs.python.org/3/library/heapq.html, https://pytorch.org/docs/stable/generated/torch.topk.html
    KnownCure(
        "It sorts everything to keep a few. Use heapq.nsmallest() or nlargest(), or torch.topk() on a whole tensor, "
        "for many rows at once (largest=False for the smallest).",
        calls=("first of sorted",),
        anywhere=True,
    ),
    # https://docs.python.org/3/library/os.html: os.fsync
    KnownCure(
        "os.fsync() waits until the disk has the data. Keep it for files that must survive a power failure, or call it "
        "every 50th step or so.",
        calls=("fsync",),
    ),
    # https://docs.scipy.org/doc/scipy/reference/sparse.html
    KnownCure(
        "Each index of a sparse matrix makes a new matrix. Take all rows of a batch by one index, or read the arrays "
        "of a CSR matrix: part = slice(m.indptr[i], m.indptr[i + 1]); m.indices[part], m.data[part].",
        ("scipy.sparse.",),
    ),
    # https://pytorch.org/docs/stable/distributions.html
    KnownCure(
        "Make one distribution for all rows of a batch, and call sample() and log_prob() once. "
        "torch.distributions.Distribution.set_default_validate_args(False) leaves out the checks of arguments.",
        ("torch.distributions.",),
    ),
    # https://pytorch.org/tutorials/intermediate/ensembling.html
    KnownCure(
        "In an ensemble or a search whose members have one model, compute them together: torch.func.vmap over "
        "torch.func.functional_call(model, parameters, inputs), with stacked parameters.",
        ("torch.nn.utils.convert_parameters.",),
        ("vector of parameters",),
        anywhere=True,
    ),
    # https://pytorch.org/tutorials/recipes/recipes/module_load_state_dict_tips.html
    KnownCure(
        "If load_state_dict() replaces these weights anyway, leave their initialization out: make the model within "
        'torch.device("meta"), and load with assign=True. Then make buffers that the file lacks, and the optimizer.',
        ("torch.nn.init.",),
        ("initialization",),
        anywhere=True,
    ),
    # torch/utils/hooks.py: remove() deletes one entry, and does nothing where it is gone
    KnownCure(
        "If the list keeps its handles, empty it after this loop: else those of all earlier calls are removed again.",
        ("torch.utils.hooks.RemovableHandle.remove",),
    ),
    # https://numba.readthedocs.io/en/stable/user/jit.html: cache
    KnownCure(
        "Numba compiles at the first call: @njit(cache=True) keeps the code on the disk for later runs.",
        ("numba.core.", "numba.np."),
        is_once=True,
    ),
    # https://pytorch.org/docs/stable/torch.compiler_faq.html
    KnownCure(
        "torch.compile compiles at the first call, and again for other shapes. To measure steps alone, call the "
        "compiled model before the loop, with a batch of each shape.",
        ("torch._dynamo.", "torch._inductor.", "torch._functorch."),
        is_once=True,
    ),
    # https://matplotlib.org/stable/install/environment_variables_faq.html
    KnownCure(
        "matplotlib makes its list of fonts, and keeps it in the folder MPLCONFIGDIR. Let that be a folder that stays.",
        ("matplotlib.font_manager._load_fontmanager", "matplotlib.font_manager.FontManager.",
         "matplotlib.font_manager.findSystemFonts"),
        is_once=True,
    ),
)  # fmt: skip
_INITIALIZES: Final = re.compile(r"\binit\.\w+_$|\breset_parameters$")
_CONSTANT: Final = ("arange", "linspace", "eye", "tril", "triu", "tensor")


class Cured(NamedTuple):
    """What helps against a part of the time of a finding."""

    text: str = ""
    share: float = 0.0
    """The share of a step at the lines of which it is known."""
    site: Site | None = None
    """The line with most of that."""

    def most_of(self, share: float) -> str:
        """Return what to do, where this is known of the lines with most of a finding's share; else empty."""
        return self.text if self.share > MOST * share else ""


def known_cure(places: Iterable[Place], share: float, *, outside: bool = False) -> str:
    """Return what helps against the time of a finding; empty where nothing is known of the lines with most of it.

    :param outside: the time is outside of the steps.
    """
    return largest_cure(places, outside=outside).most_of(share)


def largest_cure(places: Iterable[Place], *, outside: bool = False) -> Cured:
    """Return what helps against most of the time at these lines of which something is known."""
    helped = defaultdict[str, list[Place]](list)
    called = [(place, set(_called_with(place))) for place in places]
    written = {_function(place) for place, does in called if "JSON written anew" in does}
    for place, does in called:
        if "JSON read" in does and _function(place) in written:  # it reads for that what it wrote before
            does.add("JSON written anew")
        if text := _cure_of(place, does, outside=outside):
            helped[text].append(place)
    found = (Cured(text, sum(each.share for each in at), at[0].site) for text, at in helped.items())
    return max(found, key=lambda each: each.share, default=Cured())


def _function(place: Place) -> tuple[str, str]:
    return place.site.file, place.site.function


def _cure_of(place: Place, does: set[str], *, outside: bool) -> str:
    """Return what helps against the time at a line: in what the line calls itself, else in what calls that.

    :param does: what the line does (`_called_with`).
    """
    fitting = [known for known in _KNOWN if known.holds(outside=outside)]
    own = (known.text for known in fitting if known.is_about(place.inside) or does & set(known.calls))
    return next(own, "") or next((known.text for known in fitting if known.is_about(place.called_by)), "")


DENORMAL: Final = (
    "Many numbers of the model or of its optimizer's state are denormal: closer to 0 than 1.2e-38. Processors may "
    "compute many times slower with them. Call torch.set_flush_denormal(True) before the training, or use less weight "
    "decay."
)
"""What helps where numbers are denormal: https://docs.pytorch.org/docs/stable/generated/torch.set_flush_denormal.html"""
_MANY_DENORMAL: Final = 0.02
"""Share of the sampled numbers from which denormal ones are told. A choice."""


def has_denormal_numbers(facts: Mapping[str, Any]) -> bool:
    """Whether many of the sampled parameters and numbers of the optimizer's state are denormal."""
    return float(facts.get("denormal") or 0.0) >= _MANY_DENORMAL


def cure_of_function(name: str, *, outside: bool = False) -> str:
    """Return what helps against the time in a function, as module and name; empty where nothing is known."""
    return next((known.text for known in _KNOWN if known.is_about(name) and known.holds(outside=outside)), "")


def line_of_cure(cure: str, lines: Mapping[str, Any], folder: str) -> Site | None:
    """Return the line that made what a cure changes; None where it changes no object, or its line is not known.

    :param lines: the fact SETTINGS, which has lines by the names of classes too.
    """
    changed = next((known.of for known in _KNOWN if known.text == cure), "")
    return relative_site(Site.from_fact(lines[changed]), folder) if changed in lines else None


def _called_with(place: Place) -> Iterator[str]:
    """Yield what a line does, where a single call of it, or an assignment, stands for its time."""
    nodes = list(line_nodes(place.site.source))
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    functions = [ast.unparse(call.func) for call in calls]
    names = [function.rpartition(".")[2] for function in functions]
    if any(map(_INITIALIZES.search, functions)):
        yield "initialization"
    if "__iter__" in place.inside and {"sum", "max", "min", "list", "sorted"} & set(names):
        yield "sum(tensor)"
    for call, name in zip(calls, names, strict=True):
        if name == "choice":
            given = {each.arg: ast.unparse(each.value) for each in call.keywords}
            if given.get("replace") == "False":
                yield "choice without replacement"
            elif "p" in given and "replace" not in given and len(call.args) < 3:
                yield "weighted choice"
        if name in ("vector_to_parameters", "parameters_to_vector"):
            yield "vector of parameters"
        if name in ("debug", "info") and any(isinstance(each, ast.JoinedStr) for each in call.args):
            yield "formatted message"
    yield from _written(functions, names)
    if not place.package:
        yield from filter(None, map(_searched, nodes))
    if calls and all(each.startswith("torch.") for each in functions) and set(names) <= set(_CONSTANT):
        listed = [call.args[0] for call, name in zip(calls, names, strict=True) if name == "tensor" and call.args]
        if not listed or all(isinstance(each, ast.List) for each in listed):
            yield "constant tensor"
        elif all(isinstance(each, ast.Name) for each in listed):
            yield "tensor of a list"
    if any(map(_is_average, nodes)):
        yield "average of tensors"


def _written(functions: Sequence[str], names: Sequence[str]) -> Iterator[str]:
    """Yield what a line writes or reads, by the functions that it calls and their last names."""
    if "dump" in names or ("dumps" in names and "write_text" in names):
        yield "JSON written anew"
    if "json.load" in functions or "json.loads" in functions:
        yield "JSON read"
    if "fsync" in names:
        yield "fsync"


def _searched(node: ast.AST) -> str:
    """Return what a part of a line does that takes longer the more items there are; empty: nothing of this kind."""
    match node:
        case ast.Call(func=ast.Attribute(attr="index"), args=[_]):
            return "search in a list"
        case ast.Compare(ops=[ast.In() | ast.NotIn()], comparators=[ast.Call(func=ast.Name("set" | "list"))]):
            return "set built anew"
        case ast.Subscript(
            value=ast.Call(func=ast.Name("sorted")),
            slice=ast.Slice(lower=None, upper=ast.Constant() | ast.Name() | ast.Attribute(), step=None),
        ):
            return "first of sorted"
    return ""


def _is_average(node: ast.AST) -> bool:
    """Return whether this is `old.data = old.data * keep + new.data * (1 - keep)`, with the factors in any order."""
    match node:
        case ast.Assign(targets=[target], value=ast.BinOp(ast.BinOp() as one, ast.Add(), ast.BinOp() as other)):
            parts = [ast.unparse(part) for part in (one.left, one.right, other.left, other.right)]
            factors = [part for part in parts if re.fullmatch(r"1(\.0)? - [\w.]+", part)]
            return ast.unparse(target) in parts and any(factor.partition(" - ")[2] in parts for factor in factors)
    return False
