"""Knows what helps against the time in some functions of libraries, of torch and of Python.

Each row names the functions, and the documentation or the thread that tells what helps. It holds wherever the function
takes most of a line's time, whatever the program does there.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from profiler.analyse.finding import Place
from profiler.core.syntax import line_nodes
from profiler.diagnose.model import MOST


class KnownCure(NamedTuple):
    """What helps against the time in some functions."""

    text: str
    """What to do, as sentences."""
    inside: tuple[str, ...] = ()
    """Beginnings of the functions that take the time, as module and name."""
    calls: tuple[str, ...] = ()
    """What the line calls, where these functions leave no frame of their own."""
    source: str = ""
    """A pattern of the line's code."""


_KNOWN: Final = (
    # lightning.pytorch.loggers.CSVLogger and Trainer, arguments of these names
    KnownCure(
        "Let the logger write less often: CSVLogger(..., flush_logs_every_n_steps=100), and "
        "Trainer(..., log_every_n_steps=50).",
        ("lightning.pytorch.loggers.", "lightning.fabric.loggers.", "pytorch_lightning.loggers."),
    ),
    # lightning.pytorch.callbacks.TQDMProgressBar: refresh_rate
    KnownCure(
        "Refresh the progress bar less often: Trainer(..., callbacks=[TQDMProgressBar(refresh_rate=50)]).",
        ("lightning.pytorch.callbacks.progress.", "pytorch_lightning.callbacks.progress."),
    ),
    # transformers.TrainingArguments: debug
    KnownCure(
        "Leave debug='underflow_overflow' out of TrainingArguments: its hooks read all weights, inputs and outputs of "
        "each module.",
        ("transformers.debug_utils.",),
    ),
    # transformers.TrainingArguments: skip_memory_metrics
    KnownCure(
        "Pass skip_memory_metrics=True to TrainingArguments: the memory tracker polls in a thread.",
        ("transformers.trainer_utils.TrainerMemoryTracker",),
    ),
    # transformers.Trainer: preprocess_logits_for_metrics; TrainingArguments: eval_accumulation_steps
    KnownCure(
        "Let the evaluation keep less: Trainer(..., preprocess_logits_for_metrics=...), such as the argmax of the "
        "logits, or a smaller evaluation set.",
        ("transformers.trainer_pt_utils.nested_concat", "transformers.trainer_pt_utils.torch_pad_and_concatenate",
         "transformers.trainer_pt_utils.numpy_pad_and_concatenate"),
    ),
    # transformers.TrainingArguments: logging_steps
    KnownCure(
        "Log less often: raise logging_steps in TrainingArguments.",
        ("transformers.trainer_callback.ProgressCallback", "transformers.integrations."),
    ),
    # datasets: Array2D to Array5D features, Dataset.with_format, Dataset.map
    KnownCure(
        "Store the data as arrays: give the columns the features Array2D or Array3D instead of nested lists, and keep "
        "the result of with_format() that the training reads; or convert all items once to tensors.",
        ("datasets.formatting.", "datasets.features."),
    ),
    # wandb.watch: log_freq
    KnownCure("Watch less often, or not at all: wandb.watch(model, log_freq=1000).", ("wandb.integration.torch.",)),
    # torch.utils.tensorboard.SummaryWriter
    KnownCure(
        "Write to TensorBoard every 50th step or so, and histograms less often still.",
        ("torch.utils.tensorboard.", "tensorboard."),
    ),
    # tqdm: mininterval, set_postfix(refresh=False)
    KnownCure("Refresh the bar less often: tqdm(..., mininterval=1), set_postfix(..., refresh=False).", ("tqdm.",)),
    # torchmetrics: forward() computes the value of each batch, update() only adds to the state
    KnownCure(
        "Call metric.update() in each step instead of metric(), and metric.compute() once at the end of an epoch.",
        ("torchmetrics.metric.Metric.forward", "torchmetrics.metric.Metric._forward",
         "torchmetrics.metric.Metric._copy_state_dict"),
    ),
    # pandas, "Enhancing performance"
    KnownCure(
        "Turn the columns into arrays once, as by frame[names].to_numpy(), and take items from these: pandas makes new "
        "objects for each row and for each value.",
        ("pandas.",),
    ),
    # torch.nn.utils.parametrize.cached
    KnownCure(
        "Compute the parametrized weight once per step: run the step within torch.nn.utils.parametrize.cached().",
        ("torch.nn.utils.parametrizations.", "torch.nn.utils.parametrize."),
    ),
    # torch.nn.parallel.DistributedDataParallel: broadcast_buffers
    KnownCure(
        "Pass broadcast_buffers=False to DistributedDataParallel, if the buffers are the same on all ranks, as "
        "constants are: it sends them from rank 0 before each forward pass.",
        ("torch.nn.parallel.distributed.DistributedDataParallel._distributed_broadcast_coalesced",
         "torch.nn.parallel.distributed.DistributedDataParallel._sync_"),
    ),
    # torch.distributed, DistributedDataParallel: bucket_cap_mb
    KnownCure(
        "If this line runs for each tensor, exchange all of them at once: in one flat tensor, or by "
        "DistributedDataParallel, which puts gradients into buckets and exchanges them during the backward pass.",
        ("torch.distributed.distributed_c10d.all_reduce",),
    ),
    # Tensor.__iter__ unbinds the tensor; Python's sum, max and list call it
    KnownCure(
        "Use the tensor's own method, such as tensor.sum() or tensor.tolist(): Python's built-in functions make a "
        "tensor of each element.",
        ("torch._tensor.Tensor.__iter__",),
    ),
    # torch.nn.Module.register_buffer
    KnownCure(
        "If the result is the same in each step, make it once, such as in __init__ by register_buffer(), and not in "
        "each forward pass.",
        calls=("torch.arange", "torch.linspace", "torch.eye", "torch.tril", "torch.triu", "torch.tensor([])"),
    ),
    # torch.tensor, torch.from_numpy: a list is read element by element, an array is not copied
    KnownCure(
        "Build arrays of NumPy instead of lists, and make tensors of them by torch.from_numpy(): torch.tensor() reads "
        "a list element by element.",
        calls=("torch.tensor(list)",),
    ),
    # torch.optim.swa_utils.AveragedModel: get_ema_multi_avg_fn
    KnownCure(
        "Update all tensors at once: torch.optim.swa_utils.AveragedModel(model, "
        "multi_avg_fn=get_ema_multi_avg_fn(decay)), or torch._foreach_lerp_(averages, weights, 1 - decay).",
        source=r"\.data = .*\.data\b.*\.data\b",
    ),
    # datasets.Dataset.map: batched, num_proc
    KnownCure(
        "Let the function take many rows at once: Dataset.map(..., batched=True), with which a fast tokenizer works on "
        "all of them; or use several processes by num_proc.",
        ("datasets.arrow_dataset.", "datasets.arrow_writer."),
    ),
    # transformers tokenizers: a list of texts
    KnownCure(
        "Give the tokenizer many texts in one call, as in tokenizer(texts) or Dataset.map(..., batched=True), and "
        "tokenize before the training.",
        ("transformers.tokenization_", "transformers.models.bert.tokenization"),
    ),
    # numpy.random.Generator.choice
    KnownCure(
        "Draw with replacement, as by generator.integers(size, size=count), or draw one permutation and go through "
        "it: choice(..., replace=False) permutes all numbers in each call.",
        calls=("choice(replace=False)",),
    ),
    # the json module
    KnownCure(
        "Append what is new to the file, one line of JSON for each event, instead of writing all of it again; or write "
        "it every 50th step or so.",
        ("json.encoder.", "json.dump"),
        ("json.dump", "json.dumps"),
    ),
    KnownCure("Keep the object in memory instead of reading it again.", ("json.decoder.", "json.load")),
)  # fmt: skip


def known_cure(places: Iterable[Place], share: float) -> str:
    """What helps against the time of a finding; empty where nothing is known of the lines with most of it.

    :param places: its lines.
    :param share: its share of a step.
    """
    helped = defaultdict[str, float](float)
    for place in places:
        helped[_cure_of(place)] += place.share
    cure = max(helped, key=lambda each: helped[each], default="")
    return cure if helped.get(cure, 0.0) > MOST * share else ""


def _cure_of(place: Place) -> str:
    source = place.site.source
    called = set(_called_with(source))
    for known in _KNOWN:
        is_inside = bool(place.inside) and place.inside.startswith(known.inside)
        if is_inside or called & set(known.calls) or (known.source and re.search(known.source, source)):
            return known.text
    return ""


def _called_with(source: str) -> Iterator[str]:
    """The functions that a line calls, some of them with what tells more of the call."""
    for node in line_nodes(source):
        match node:
            case ast.Call(func=ast.Attribute(attr="choice"), keywords=keywords) if any(
                each.arg == "replace" and ast.unparse(each.value) == "False" for each in keywords
            ):
                yield "choice(replace=False)"
            case ast.Call(func=function, args=[ast.List(), *_]) if ast.unparse(function) == "torch.tensor":
                yield "torch.tensor([])"
            case ast.Call(func=function, args=[ast.Name(), *_]) if ast.unparse(function) == "torch.tensor":
                yield "torch.tensor(list)"
            case ast.Call(func=function):
                yield ast.unparse(function)
