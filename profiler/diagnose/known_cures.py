"""Knows what helps against the time in some functions of libraries, of torch and of Python.

Each row names the functions, and the documentation or the thread that tells what helps. It holds wherever the function
takes most of a line's time, whatever the program does there.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from profiler.analyse.finding import Place
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
    of: str = ""
    """The class whose arguments it changes, of which the recorder notes the line (`profiler.agent.hooks.settings`)."""

    def is_about(self, function: str) -> bool:
        """Whether it is about a function."""
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
         "transformers.tokenization_utils_base.PreTrainedTokenizerBase._", "transformers.tokenization_python.",
         "transformers.models.bert.tokenization"),
        anywhere=True,
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
        "Pass broadcast_buffers=False to DistributedDataParallel (forward_sync_buffers in newer versions of torch), if "
        "the buffers are the same on all ranks, as constants are: it sends them from rank 0 before each forward pass.",
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
        "If the result is the same in each step, make it once, such as in __init__ by register_buffer(), and not in "
        "each forward pass.",
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
        "multi_avg_fn=get_ema_multi_avg_fn(decay)).",
        calls=("average of tensors",),
    ),
    # https://numpy.org/doc/stable/reference/random/generated/numpy.random.choice.html
    KnownCure(
        "Draw by numpy.random.default_rng(), whose choice(..., replace=False, shuffle=False) does not permute all "
        "numbers, or draw with replacement, as by integers(size, size=count).",
        calls=("choice without replacement",),
    ),
    # https://docs.python.org/3/howto/logging.html: optimization
    KnownCure(
        'Pass values as arguments, as in log.debug("%s", x), or ask log.isEnabledFor() first: an f-string makes its '
        "text also where the message is not shown.",
        calls=("formatted message",),
    ),
    # https://docs.python.org/3/library/json.html
    KnownCure(
        "Append what is new to the file, one line of JSON for each event, instead of writing all of it again; or write "
        "it every 50th step or so.",
        calls=("JSON written anew",),
    ),
)  # fmt: skip
_CONSTANT: Final = ("arange", "linspace", "eye", "tril", "triu")
_BUILT_IN: Final = ("sum", "max", "min", "list", "sorted")


def known_cure(places: Iterable[Place], share: float, *, outside: bool = False) -> str:
    """What helps against the time of a finding; empty where nothing is known of the lines with most of it.

    :param places: its lines.
    :param share: its share of a step.
    :param outside: the time is outside of the steps.
    """
    helped = defaultdict[str, float](float)
    for place in places:
        helped[_cure_of(place, outside=outside)] += place.share
    cure = max(helped, key=lambda each: helped[each], default="")
    return cure if helped.get(cure, 0.0) > MOST * share else ""


def _cure_of(place: Place, *, outside: bool) -> str:
    """What helps against the time at a line: in what the line calls itself, else in what calls that."""
    called, fitting = set(_called_with(place)), [known for known in _KNOWN if known.anywhere or not outside]
    own = (known.text for known in fitting if known.is_about(place.inside) or called & set(known.calls))
    return next(own, "") or next((known.text for known in fitting if known.is_about(place.called_by)), "")


def cure_of_function(name: str) -> str:
    """What helps against the time in a function, as module and name; empty where nothing is known."""
    return next((known.text for known in _KNOWN if known.is_about(name)), "")


def line_of_cure(cure: str, lines: Mapping[str, Any], folder: str) -> Site | None:
    """The line that made what a cure changes; None where it changes no object, or its line is not known.

    :param lines: the fact SETTINGS, which has lines by the names of classes too.
    :param folder: that of the project, to which the file is made relative.
    """
    changed = next((known.of for known in _KNOWN if known.text == cure), "")
    return relative_site(Site.from_fact(lines[changed]), folder) if changed in lines else None


def _called_with(place: Place) -> Iterator[str]:
    """What a line does, where a single call of it, or an assignment, stands for its time."""
    nodes = list(line_nodes(place.site.source))
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    names = [ast.unparse(call.func).rpartition(".")[2] for call in calls]
    is_torch = [ast.unparse(call.func).startswith("torch.") for call in calls]
    if "__iter__" in place.inside and set(names) & set(_BUILT_IN):
        yield "sum(tensor)"
    for call, name in zip(calls, names, strict=True):
        without = any(each.arg == "replace" and ast.unparse(each.value) == "False" for each in call.keywords)
        if name == "choice" and without:
            yield "choice without replacement"
        if name in ("debug", "info") and any(isinstance(each, ast.JoinedStr) for each in call.args):
            yield "formatted message"
    if "dump" in names or ("dumps" in names and "write_text" in names):
        yield "JSON written anew"
    if calls and all(is_torch) and all(name in _CONSTANT or name == "tensor" for name in names):
        listed = [call.args[0] for call, name in zip(calls, names, strict=True) if name == "tensor" and call.args]
        if not listed or all(isinstance(each, ast.List) for each in listed):
            yield "constant tensor"
        elif all(isinstance(each, ast.Name) for each in listed):
            yield "tensor of a list"
    if any(map(_is_average, nodes)):
        yield "average of tensors"


def _is_average(node: ast.AST) -> bool:
    """Whether this is `old.data = old.data * keep + new.data * (1 - keep)`, with the factors in any order."""
    match node:
        case ast.Assign(targets=[target], value=ast.BinOp(ast.BinOp() as one, ast.Add(), ast.BinOp() as other)):
            parts = [ast.unparse(part) for part in (one.left, one.right, other.left, other.right)]
            factors = [part for part in parts if re.fullmatch(r"1(\.0)? - [\w.]+", part)]
            return ast.unparse(target) in parts and any(factor.partition(" - ")[2] in parts for factor in factors)
    return False
