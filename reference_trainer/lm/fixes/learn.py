"""Learn: cross-entropy, backpropagation through the recurrence and AdamW instead of 0/1 loss and reward."""

from reference_trainer.lm.plan import Fix

PLUGIN = Fix(
    name="learn",
    removes="a loss that teaches nothing",
    rule="no-learning",
    changes={"learn": True},
    order=220,
    requires=("async", "batch-embed", "batch-recurrence", "batch-decode", "device-loss", "pooled", "zero-copy"),
    excludes=("quiet-logging", "cuda-graph"),
    kind="work",
)
