"""Draw and check many guesses at once, and wait once for all of them."""

from reference_trainer.cures import Fix

PLUGIN = Fix(
    name="batched-draws",
    removes="a draw, a forward pass and a wait for every single guess",
    rule="per-guess-sync",
    changes={"batched_draws": True},
    order=30,
)
