"""The bundled trainers, described: how each is started, and which options of a comparison mean something to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Trainer:
    """How one of them is started, and which options of a comparison mean something to it."""

    name: str
    what: str
    """In a sentence."""
    module: str
    options: tuple[str, ...]
    """Options of a comparison that every run of it is given, warm-ups and the list of fixes too; without dashes."""
    pair: Mapping[str, str]
    """How much a measured run does, where a comparison does not say: option -> value. Only measured runs have these."""
    ladder: Mapping[str, str]
    """The same in a ladder, which has many more programs."""
    warmup: tuple[str, ...]
    """Words that make a run as short as it can be and still compile everything."""
    floor: tuple[str, ...] = ()
    """Words with which the calls are made and nothing is computed; empty: it has no such runs."""
    hooked: bool = False
    """It marks its steps only: hooks go into its processes."""

    @property
    def understands(self) -> tuple[str, ...]:
        """All options of a comparison that mean something to it."""
        return (*self.options, *self.pair)


LM: Final = Trainer(
    name="lm",
    what="the language model",
    module="reference_trainer.lm",
    options=("preset", "device", "corpus"),
    pair={"seconds": "3.0"},
    ladder={"seconds": "1.0"},
    warmup=("--max-chunks", "1", "--warmup-seconds", "0"),
    floor=("--empty-kernels",),
)
SSM: Final = Trainer(
    name="ssm",
    what="the sweep of teacher-student experiments",
    module="reference_trainer.ssm",
    options=("device",),
    # 60 jobs, and 24: as found some 0.3 s each on a slow core, beside the 4 to 10 s that the start takes. They are six
    # steps: a run of fewer than five is doubted.
    pair={"num-seeds": "10", "teacher-ranks": "1", "student-dims": "8,16,32", "sequence-length": "24"},
    ladder={"num-seeds": "4", "teacher-ranks": "1", "student-dims": "8,16,32", "sequence-length": "24"},
    warmup=("--num-seeds", "1", "--teacher-ranks", "1", "--student-dims", "8", "--epochs", "2", "--max-guesses", "64"),
    hooked=True,
)
TRAINERS: Final[Mapping[str, Trainer]] = {trainer.name: trainer for trainer in (LM, SSM)}
