"""What the case claimed: every number of it, in this one place.

The case is a report on a language-model trainer on a GPU that trained token by token through the host; the bundled
trainer rebuilds it. Nothing here was measured by this tool.
"""

from __future__ import annotations

from typing import Final

SOURCE: Final = "the case as reported"

AS_FOUND_TOKENS_PER_S: Final = 20.0
AS_FOUND_CPU: Final = 1.0
"""Share of the machine's core or cores."""
AS_FOUND_DEVICE_BUSY: Final = 0.10
"""Share of the time."""
SYNCS_PER_CHUNK: Final = 3000
"""A GPU-to-CPU sync after every token."""
BATCH_SAMPLES: Final = 8
BATCH_TOKENIZE_S: Final = 0.0453
"""Tokenization of BATCH_SAMPLES samples in one call."""
SAMPLE_TOKENIZE_S: Final = 0.0057
"""The same, a sample."""
HOPED_GAIN: Final = 300.0
"""Tokens a second, cured over as found."""
HOPED_CPU: Final = (0.10, 0.15)
HOPED_DEVICE_BUSY: Final = (0.85, 0.90)
CAUSE: Final = "named as a cause"
"""Said of inline tokenization, without a share."""
THOUSANDS: Final = "thousands, named as a cause"
"""Said of tiny copies and of allocations."""
