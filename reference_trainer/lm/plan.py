"""The choices of a training step, and the fixes that change them: the defaults are the slow program.

A variant is a named set of fixes over the as-found plan.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from reference_trainer.fixes import Fix, FixSet
from reference_trainer.lm.settings import PLAIN

__all__ = ["FIXES", "Fix", "Plan", "fixes", "listing", "plan", "variant_fixes"]


@dataclass(frozen=True, slots=True)
class Plan:
    """The choices of a step; the defaults are as found."""

    tokenize: str = "inline"
    """inline: sample by sample | batch: one call of the library a chunk | shards: read from files"""
    parallel_tokenize: bool = False
    """True: background workers tokenize the next chunks"""
    asynchronous: bool = False
    """True: readouts and predictions stay on the device; results are fetched once a chunk"""
    embed: str = "tokens"
    """tokens: a row of the host's table is uploaded for each token | chunk: one kernel gathers all rows"""
    recurrence: str = "tokens"
    """tokens: a launch a token | chunk: matrix products, and one scan over time a layer"""
    decode: str = "tokens"
    """tokens: a launch a token | chunk: one product and one kernel"""
    loss: str = "host"
    """host: predictions are compared on the host | device: loss, accuracy and reward are reduced where they are"""
    pooled: bool = False
    """True: device memory is allocated once"""
    zero_copy: bool = False
    """True: pinned memory and NumPy views instead of fresh vectors and lists"""
    prefetch: bool = False
    """True: the next chunk is uploaded and put into the queue while the device works on this one"""
    quiet: bool = False
    """True: metrics are summed up on the device and read every so many chunks"""
    blocking_wait: bool = False
    """True: a waiting host thread sleeps instead of spinning"""
    graph: bool = False
    """True: the launches of a chunk are captured once and replayed as one"""
    learn: bool = False
    """True: cross-entropy, backpropagation and AdamW instead of the 0/1 loss and the reward"""


# In the order of the ladder.
FIXES: Final = (
    Fix(
        name="batch-tokenize",
        code=("lm/chunks.py",),
        removes="one call of the tokenizer, and a list of ids, per sample",
        rule="inline-tokenization",
        changes={"tokenize": "batch"},
    ),
    Fix(
        name="async",
        code=("lm/stages/recurrence.py", "lm/stages/decode.py"),
        removes="two syncs and three copies per token: the host waits for every single result",
        rule="per-element-reads",
        changes={"asynchronous": True},
        rule_left_out="hidden-sync",  # whole chunks have a few results, not thousands
    ),
    Fix(
        name="batch-embed",
        code=("lm/stages/embed.py", "kernels/embed.py"),
        removes="a fresh host vector, an allocation and an upload per token",
        rule="tiny-copies",
        changes={"embed": "chunk"},
    ),
    Fix(
        name="batch-recurrence",
        code=("lm/stages/recurrence.py", "kernels/scan.py"),
        removes="a launch, an allocation and a sync per token for the recurrent layers",
        rule="many-small-kernels",
        changes={"recurrence": "chunk"},
    ),
    Fix(
        name="batch-decode",
        code=("lm/stages/decode.py", "kernels/predict.py"),
        removes="a launch, two copies, two allocations and a sync per token for the decoder",
        rule="many-small-kernels",
        changes={"decode": "chunk"},
    ),
    Fix(
        name="device-loss",
        code=("lm/stages/loss.py", "kernels/rewards.py", "kernels/predict.py"),
        removes="predictions that visit the host to be compared, and rewards that go back",
        rule="per-element-reads",
        changes={"loss": "device"},
        rule_left_out="hidden-sync",
    ),
    Fix(
        name="pooled",
        code=("lm/stages/__init__.py",),
        removes="device allocations in every step",
        rule="",
        changes={"pooled": True},
    ),
    Fix(
        name="zero-copy",
        code=("lm/pipeline.py",),
        removes="fresh host vectors, lists, and pageable copies that are staged",
        rule="pageable-copies",
        changes={"zero_copy": True},
    ),
    Fix(
        name="prefetch",
        code=("lm/pipeline.py", "lm/result.py"),
        removes="a device that is idle while the host prepares the next chunk",
        rule="hidden-sync",
        changes={"prefetch": True},
        requires=("async", "device-loss", "zero-copy"),
    ),
    Fix(
        name="quiet-logging",
        code=("lm/pipeline.py", "kernels/rewards.py"),
        removes="a download of metrics, and their bookkeeping, in every step",
        rule="hidden-sync",
        changes={"quiet": True},
        requires=("async", "device-loss"),
    ),
    Fix(
        name="parallel-tokenize",
        code=("lm/parallel_tokenize.py",),
        removes="tokenization in the thread that launches",
        rule="inline-tokenization",
        changes={"parallel_tokenize": True},
        requires=("batch-tokenize",),
    ),
    Fix(
        name="blocking-wait",
        code=("devices/host_queue.py", "devices/cuda.py"),
        removes="a host core that spins while it waits for the device",
        rule="",
        changes={"blocking_wait": True},
    ),
    Fix(
        name="cuda-graph",
        code=("lm/replay.py", "devices/cuda_graph.py"),
        removes="a launch from the host for every kernel of a chunk",
        rule="many-small-kernels",
        changes={"graph": True},
        requires=("async", "batch-embed", "batch-recurrence", "batch-decode", "device-loss", "pooled"),
        kind="on top",  # it has never run on a GPU: until then it is no part of fixed
        device="cuda",
    ),
    Fix(
        name="pretokenize",
        code=("lm/shards.py",),
        removes="all tokenization, of every epoch",
        rule="inline-tokenization",
        changes={"tokenize": "shards"},
        excludes=("batch-tokenize", "parallel-tokenize"),
        kind="instead",
    ),
    Fix(
        name="learn",
        code=("lm/learning.py", "lm/learn_chunk.py", "kernels/adamw.py"),
        removes="a loss that teaches nothing",
        rule="",
        changes={"learn": True},
        requires=("async", "batch-embed", "batch-recurrence", "batch-decode", "device-loss", "pooled", "zero-copy"),
        excludes=("quiet-logging",),
        kind="work",
    ),
)
_FIX_SET: Final = FixSet(FIXES, Plan())
fixes, plan, variant_fixes = _FIX_SET.fixes, _FIX_SET.plan, _FIX_SET.variant_fixes


def listing(device: str) -> dict[str, Any]:
    """All fixes, and the programs that a ladder measures beside them: narrower products, and plain PyTorch."""
    everything = ",".join((*variant_fixes("fixed", device), "cuda-graph"))
    narrower = [
        {
            "label": dtype,
            "kind": "precision",
            "what": f"fixed with cuda-graph, inputs of products rounded to {dtype}",
            "arguments": ["--fixes", everything, "--dtype", dtype],
            "why_not": "" if device == "cuda" else "the host device emulates this rounding, which makes it slower",
        }
        for dtype in ("tf32", "bf16")
    ]
    plain = [
        {
            "label": f"plain PyTorch, {how}",
            "kind": "beside",
            "what": "the same predictions by torch's own operators; no fix of this trainer",
            "arguments": ["--variant", variant],
        }
        for variant, how in PLAIN.items()
    ]
    return {**_FIX_SET.listing(device), "programs": [*narrower, *plain]}
