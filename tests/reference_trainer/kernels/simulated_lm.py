"""Runs the language model on a virtual GPU, with its kernels in Numba's simulator and the least work that a run does.

A program of its own: NUMBA_ENABLE_CUDASIM=1 must be set before Numba is imported.
"""

from __future__ import annotations

import sys

from reference_trainer.kernels import on_cuda

if __name__ == "__main__":
    # A thread of a block is one of Python's: with 256, a token takes 0.1 s and an analysis of all stacks minutes.
    on_cuda.SHARED_THREADS = 8
    on_cuda.threads_for.__defaults__ = (on_cuda.SHARED_THREADS,)

    from profiler.exact import virtual_cuda
    from reference_trainer.lm import model, stated
    from reference_trainer.lm.__main__ import main
    from tests.reference_trainer.kernels.simulate import hasten

    hasten()
    model.PRESETS["tiny"] = model.ModelConfig(width=3, layers=1, vocabulary=256)
    all_chunks = stated.vocabulary_chunks
    # not each id of the vocabulary, but chunks of two tokens and of one
    stated.vocabulary_chunks = lambda vocabulary, tokens: all_chunks(3, 2)
    with virtual_cuda():
        code = main()
    sys.exit(code)
