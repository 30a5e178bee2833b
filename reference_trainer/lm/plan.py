"""The choices of a training step, and the fixes that change them: the defaults are the slow program.

A variant is a named set of fixes over the as-found plan.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from reference_trainer.fixes import Fix, FixSet, LeftOut
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


_NO_TOKENIZING: Final = "tokenization takes less than 5% of a step at preset tiny"
# In the order of the ladder. The code that a fix switches on is named by its module below `reference_trainer.lm`, or by
# `devices` and `kernels` beside it. The gains of `left_out` were measured on 2026-11-23.
FIXES: Final = (
    Fix(
        name="batch-tokenize",
        does="Tokenize all samples of a chunk in one call of the library.",
        code="chunks.Chunks, with batch=True",
        removes="one call of the tokenizer, and a list of ids, per sample",
        rule="inline-tokenization",
        changes={"tokenize": "batch"},
        left_out=LeftOut((0.993, 0.947, 1.04), silent=_NO_TOKENIZING),
    ),
    Fix(
        name="async",
        does="Leave readouts and predictions on the device; fetch the results once a chunk.",
        code="the `asynchronous` branches of stages.recurrence and stages.decode",
        removes="two syncs and three copies per token: the host waits for every single result",
        rule="per-element-reads",
        changes={"asynchronous": True},
        left_out=LeftOut((1.30, 1.22, 1.40), rule="hidden-sync"),  # whole chunks have a few results, not thousands
    ),
    Fix(
        name="batch-embed",
        does="Gather the embeddings of a chunk by one kernel out of a table on the device.",
        code="stages.embed.EmbedChunk, kernels.embed",
        removes="a fresh host vector, an allocation and an upload per token",
        rule="tiny-copies",
        changes={"embed": "chunk"},
        left_out=LeftOut((3.51, 3.23, 3.81)),
    ),
    Fix(
        name="batch-recurrence",
        does="Run the layers over the whole chunk: matrix products, and time inside one kernel a layer.",
        code="stages.recurrence.RecurrenceChunk, kernels.scan",
        removes="a launch, an allocation and a sync per token for the recurrent layers",
        rule="many-small-kernels",
        changes={"recurrence": "chunk"},
        left_out=LeftOut((5.59, 5.42, 5.77)),
    ),
    Fix(
        name="batch-decode",
        does="Compute all logits of a chunk by one product and all predictions by one kernel.",
        code="stages.decode.DecodeChunk, kernels.predict",
        removes="a launch, two copies, two allocations and a sync per token for the decoder",
        rule="many-small-kernels",
        changes={"decode": "chunk"},
        left_out=LeftOut((9.36, 9.03, 9.70)),
    ),
    Fix(
        name="device-loss",
        does="Reduce loss, accuracy and reward on the device.",
        code="stages.loss.LossOnDevice, kernels.rewards and kernels.predict",
        removes="predictions that visit the host to be compared, and rewards that go back",
        rule="per-element-reads",
        changes={"loss": "device"},
        left_out=LeftOut(
            (1.28, 1.02, 1.61),
            rule="hidden-sync",
            silent="1.16 of it is prefetch, which is left out too; reading the predictions takes 3% to 6% of a step",
        ),
    ),
    Fix(
        name="pooled",
        does="Allocate device memory once.",
        code="stages.Work.memory, stages.Work.uploader",
        removes="device allocations in every step",
        rule="",
        changes={"pooled": True},
        left_out=LeftOut((1.03, 0.990, 1.07), silent="allocations of the host device come from a pool as well"),
    ),
    Fix(
        name="zero-copy",
        does="Pinned staging memory and NumPy views instead of fresh vectors and lists.",
        code="the pinned arrays of stages and of pipeline.Pipeline",
        removes="fresh host vectors, lists, and pageable copies that are staged",
        rule="pageable-copies",
        changes={"zero_copy": True},
        left_out=LeftOut(
            (1.18, 1.09, 1.28),
            silent="1.16 of it is prefetch, which is left out too; a copy within the host's memory takes 1% of a step",
        ),
    ),
    Fix(
        name="prefetch",
        does="Upload the next chunk and put it into the queue while the device works on this one.",
        code="pipeline.Pipeline._upload_ids, result.running",
        removes="a device that is idle while the host prepares the next chunk",
        rule="hidden-sync",
        changes={"prefetch": True},
        requires=("async", "device-loss", "zero-copy"),
        left_out=LeftOut((1.16, 1.06, 1.27)),
    ),
    Fix(
        name="quiet-logging",
        does="Sum the metrics up on the device and read them every 16 chunks.",
        code="pipeline.Pipeline._fetch, kernels.rewards",
        removes="a download of metrics, and their bookkeeping, in every step",
        rule="hidden-sync",
        changes={"quiet": True},
        requires=("async", "device-loss"),
        left_out=LeftOut((0.989, 0.951, 1.03), silent="one read per chunk beside that of the loss costs nothing there"),
    ),
    Fix(
        name="parallel-tokenize",
        does="Tokenize the next chunks in background workers while the device works.",
        code="parallel_tokenize.ParallelChunks",
        removes="tokenization in the thread that launches",
        rule="inline-tokenization",
        changes={"parallel_tokenize": True},
        requires=("batch-tokenize",),
        left_out=LeftOut((0.983, 0.948, 1.02), silent=_NO_TOKENIZING),
    ),
    Fix(
        name="blocking-wait",
        does="Let the waiting host thread sleep instead of spinning on a core.",
        code="devices.host_queue and devices.cuda: how they wait",
        removes="a host core that spins while it waits for the device",
        rule="",
        changes={"blocking_wait": True},
        left_out=LeftOut((0.958, 0.914, 1.00), silent="it frees a core, and a step does not need another one"),
    ),
    Fix(
        name="cuda-graph",
        does="Capture the launches of a chunk once, and replay them as one.",
        code="replay.Replay, devices.cuda_graph",
        removes="a launch from the host for every kernel of a chunk",
        rule="many-small-kernels",
        changes={"graph": True},
        requires=("async", "batch-embed", "batch-recurrence", "batch-decode", "device-loss", "pooled"),
        kind="on top",  # it has never run on a GPU: until then it is no part of fixed
        device="cuda",
        left_out=LeftOut(silent="it is for CUDA only"),
    ),
    Fix(
        name="pretokenize",
        does="Read token ids from memory-mapped shards that were written before training.",
        code="shards.ShardChunks",
        removes="all tokenization, of every epoch",
        rule="inline-tokenization",
        changes={"tokenize": "shards"},
        excludes=("batch-tokenize", "parallel-tokenize"),
        kind="instead",
        left_out=LeftOut(silent="it is no part of the variant fixed"),
    ),
    Fix(
        name="learn",
        does="Learn: cross-entropy, backpropagation through the recurrence and AdamW instead of 0/1 loss and reward.",
        code="learning.Learning, learn_chunk, kernels.adamw and the backward kernels",
        removes="a loss that teaches nothing",
        rule="",
        changes={"learn": True},
        requires=("async", "batch-embed", "batch-recurrence", "batch-decode", "device-loss", "pooled", "zero-copy"),
        excludes=("quiet-logging",),
        kind="work",
        left_out=LeftOut(silent="it is no part of the variant fixed"),
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
