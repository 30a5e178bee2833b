"""Errors in the fixed program, planted at the device, the kernels and the text, so that they hold for any loop."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import FunctionType
from typing import Any

import numpy as np
import pytest

from reference_trainer.devices.host import HostDevice
from reference_trainer.jit import cfunc
from reference_trainer.kernels import embed, predict, rewards, scan
from reference_trainer.lm import fixed, loop, parallel_tokenize, pipeline, stated
from reference_trainer.lm.result import KEPT_CHUNKS, LAST_CHUNKS, Result

Patch = pytest.MonkeyPatch
Mutation = Callable[[Patch], None]
LATE = 20
"""Chunks that the fixed program computes rightly before a late error begins: as-found does far fewer."""
CHUNKS = KEPT_CHUNKS + LAST_CHUNKS + 9
"""Measured chunks: so many that the predictions of some are not kept."""


def always(chunk: int) -> bool:
    return True


def late(chunk: int) -> bool:
    return chunk >= LATE


def seldom(chunk: int) -> bool:
    """Every seventh chunk, none of the first ones."""
    return chunk >= LATE and chunk % 7 == 0


def launches(
    kernel: Any, change: Callable[[HostDevice, list[Any]], Any], when: Callable[[int], bool] = always
) -> Mutation:
    """Change the arguments of a kernel's launches in place; `change` may return False to leave the launch out."""

    def plant(patch: Patch) -> None:
        launch, chunks = HostDevice.launch, [0]

        def changed(self: HostDevice, launched: Any, *arguments: Any) -> None:
            values = [*arguments]
            if launched is not kernel or not when(chunks[0]) or change(self, values) is not False:
                launch(self, launched, *values)
            chunks[0] += launched is rewards.MODULATE

        patch.setattr(HostDevice, "launch", changed)

    return plant


def numbered(kernel: Any, change: Callable[[HostDevice, list[Any]], Any], when: Callable[[int], bool]) -> Mutation:
    """Do the same where the program itself goes by the number of the chunk that it has asked for."""

    def plant(patch: Patch) -> None:
        ids, asked = stated.Statements.ids, [0]

        def noted(self: stated.Statements, index: int) -> np.ndarray:
            asked[0] = index
            return ids(self, index)

        patch.setattr(stated.Statements, "ids", noted)
        launches(kernel, change, lambda _: when(asked[0]))(patch)

    return plant


def skipped_chunks(patch: Patch) -> None:
    """The program asks for another chunk than the one that it is to run."""
    ids = stated.Statements.ids
    patch.setattr(stated.Statements, "ids", lambda self, index: ids(self, index + (index >= LATE)))


def results(change: Callable[[Result], Result]) -> Mutation:
    """Change what the program gives back for each chunk."""

    def plant(patch: Patch) -> None:
        for module in (fixed, pipeline):
            patch.setattr(module, "Result", lambda *values, **more: change(Result(*values, **more)))

    return plant


def argument(index: int, change: Callable[[Any], Any]) -> Callable[[HostDevice, list[Any]], None]:
    def changed(_: HostDevice, values: list[Any]) -> None:
        values[index] = change(values[index])

    return changed


def zeros(index: int) -> Callable[[HostDevice, list[Any]], None]:
    """A buffer of zeros instead of the one that the kernel shares with other launches."""

    def changed(device: HostDevice, values: list[Any]) -> None:
        values[index] = device.zeros(values[index].shape)

    return changed


def source(change: Callable[[Callable[[int], np.ndarray], int], np.ndarray]) -> Mutation:
    """Change the chunks that the fixed program is given: `change(ids, index)`."""

    def plant(patch: Patch) -> None:
        ids = parallel_tokenize.ParallelChunks.ids
        patch.setattr(
            parallel_tokenize.ParallelChunks, "ids", lambda self, index: change(lambda i: ids(self, i), index)
        )

    return plant


def swapped_samples(patch: Patch) -> None:
    encode = parallel_tokenize.ParallelChunks._encode

    def changed(self: parallel_tokenize.ParallelChunks, task: int) -> tuple[list[np.ndarray], float]:
        pieces, took = encode(self, task)
        return pieces[::-1], took

    patch.setattr(parallel_tokenize.ParallelChunks, "_encode", changed)


def uploads(change: Callable[[Sequence[np.ndarray]], np.ndarray], when: Callable[[int], bool] = always) -> Mutation:
    """Change the ids that are uploaded; `change` gets those of all chunks so far."""

    def plant(patch: Patch) -> None:
        upload, so_far = HostDevice.prefetch_into, list[np.ndarray]()

        def changed(self: HostDevice, buffer: Any, array: np.ndarray) -> None:
            so_far.append(np.array(array))
            if when(len(so_far) - 1):
                array[:] = np.resize(change(so_far), array.shape)
            upload(self, buffer, array)

        patch.setattr(HostDevice, "prefetch_into", changed)

    return plant


def weights(name: str, change: Callable[[np.ndarray], np.ndarray]) -> Mutation:
    """Change the weights that the fixed program computes with."""

    def plant(patch: Patch) -> None:
        initial = loop.initial_weights

        def changed(config: Any, seed: int) -> Any:
            made = initial(config, seed)
            array = np.ascontiguousarray(change(getattr(made, name)))
            assert array.shape == getattr(made, name).shape
            return replace(made, **{name: array})

        patch.setattr(loop, "initial_weights", changed)

    return plant


def products(number: int, change: Callable[[list[Any]], None], when: Callable[[int], bool] = always) -> Mutation:
    """Change the matrix product of that number in each chunk, of four: two layers, readout, decoder."""

    def plant(patch: Patch) -> None:
        matmul, count = HostDevice.matmul, iter(range(10**6))

        def changed(self: HostDevice, *arguments: Any) -> None:
            values = [*arguments]
            chunk, position = divmod(next(count), 4)
            if position == number and when(chunk):
                change(values)
            matmul(self, *values)

        patch.setattr(HostDevice, "matmul", changed)

    return plant


def fewer_rows(values: list[Any]) -> None:
    values[3] -= 1


def half_of_the_rows(values: list[Any]) -> None:
    values[3] //= 2


def fewer_bits(bits: int, when: Callable[[int], bool] = always) -> Mutation:
    """Round the factors of all products, as TF32 (13 bits dropped) and bfloat16 (16) do."""

    def plant(patch: Patch) -> None:
        matmul, count = HostDevice.matmul, iter(range(10**6))

        def changed(self: HostDevice, *arguments: Any) -> None:
            self._dropped_bits = bits if when(next(count) // 4) else 0
            matmul(self, *arguments)

        patch.setattr(HostDevice, "matmul", changed)

    return plant


def plus(index: int, number: float) -> Callable[[HostDevice, list[Any]], None]:
    """Add a number to the first element of a buffer."""

    def changed(device: HostDevice, values: list[Any]) -> None:
        array = device.download(values[index])
        array[0] += number
        device.upload_into(values[index], array)

    return changed


def doubled(_: HostDevice, values: list[Any]) -> None:
    """The results of a chunk are added up twice: the reported loss is wrong."""
    values[2] *= 2


def repeated_groups(patch: Patch) -> None:
    """The parallel tokenizer repeats groups of samples from the eighth on."""
    group = parallel_tokenize.ParallelChunks.group
    patch.setattr(parallel_tokenize.ParallelChunks, "group", lambda self, n: group(self, n if n < 8 else n // 2))


def one_id(ids: np.ndarray) -> np.ndarray:
    """Another id at one place."""
    return np.where(np.arange(len(ids)) == 99, (ids + 1) % 256, ids)


def pause(chunk: int) -> bool:
    return chunk == LATE + 1


def kernel_code(kernel: Any, old: str, new: str) -> Mutation:
    """Compile the kernel with a line changed."""

    def plant(patch: Patch) -> None:
        text = inspect.getsource(kernel.host)
        assert old in text
        names = dict(kernel.host.__globals__)
        exec(text.replace(old, new), names)
        body = names[kernel.host.__name__]
        assert isinstance(body, FunctionType)
        compiled = cfunc("void(int64)", fastmath=kernel.fastmath, error_model="numpy")(body)
        patch.setitem(vars(kernel), "_compiled", compiled)
        patch.setitem(vars(kernel), "address", compiled.address)

    return plant


def transposed(square: np.ndarray) -> np.ndarray:
    return square.T


def one_place_off(device: HostDevice, values: list[Any]) -> None:
    """The kernel compares predictions with the tokens that they were made from: ids[t] instead of ids[t + 1]."""
    ids = device.download(values[4])
    values[4] = device.upload(np.concatenate([ids[:1], ids[:-1]]))


def mask_one(device: HostDevice, values: list[Any]) -> None:
    bias = device.download(values[3])
    bias[40] = -np.inf
    values[3] = device.upload(bias)


ERRORS: dict[str, Mutation] = {
    # order and number of chunks and tokens
    "a chunk is dropped": source(lambda ids, index: ids(index + (index > 0))),
    "two chunks change places": source(lambda ids, index: ids({1: 2, 2: 1}.get(index, index))),
    "a chunk is repeated": source(lambda ids, index: ids(max(0, index - 1))),
    "the last token of a chunk is dropped": source(lambda ids, index: ids(index)[:-1]),
    "two tokens change places": source(lambda ids, index: ids(index)[[1, 0, *range(2, len(ids(index)))]]),
    "samples are in another order": swapped_samples,
    "one token has another id": source(lambda ids, index: np.where(np.arange(len(ids(index))) == 99, 5, ids(index))),
    # stale buffers
    "the third chunk finds the ids of the first in its buffer": uploads(lambda so_far: so_far[(len(so_far) - 1) % 2]),
    "ids are uploaded one place too late": uploads(lambda so_far: np.roll(so_far[-1], 1)),
    "the end of the ids is that of the chunk before": uploads(
        lambda so_far: np.append(so_far[-1][:-9], so_far[-2:][0][-9:])
    ),
    # embedding
    "the embeddings of ten ids are missing": weights(
        "embedding", lambda table: np.vstack([table[:10] * 0, table[10:]])
    ),
    "embeddings are those of the next id": weights("embedding", lambda table: np.roll(table, 1, axis=0)),
    "the embedding of the last token is missing": launches(embed.EMBED, argument(3, lambda tokens: tokens - 1)),
    # recurrence, carry and modulator
    "the recurrence is left out": launches(scan.SCAN, lambda *_: False),
    "the recurrence ends one token early": launches(scan.SCAN, argument(5, lambda tokens: tokens - 1)),
    "the state is not carried": launches(scan.SCAN, zeros(3)),
    "the bias is missing": launches(scan.SCAN, zeros(2)),
    "the second layer has the bias of the first": launches(scan.SCAN, argument(7, lambda _: 0)),
    "the modulator is ignored": launches(scan.SCAN, zeros(4)),
    "the modulator is never updated": launches(rewards.MODULATE, zeros(2)),
    "rewards are not reset": launches(rewards.MODULATE, lambda *_: False),
    # products, predictions and loss
    "the readout is transposed": weights("readout", transposed),
    "a layer is transposed": weights("layer", lambda layers: np.flip(layers, axis=1)),
    "the readout of the last token is missing": products(2, fewer_rows),
    "the logits of the last token are missing": products(3, fewer_rows),
    "targets are one place off": launches(predict.SCORE, one_place_off),
    "the last token is not predicted": launches(predict.SCORE, argument(5, lambda tokens: tokens - 1)),
    "one entry of the vocabulary is never predicted": launches(predict.SCORE, mask_one),
}

# Late errors begin after chunks that as-found never comes to; rare ones concern single ids, places or chunks.
ERRORS |= {
    "late: half of the rows are decoded": products(3, half_of_the_rows, late),
    "late: the last readout is missing": products(2, fewer_rows, late),
    "late: the ids are those of the third chunk": uploads(lambda so_far: so_far[2], late),
    "late: another text": source(lambda ids, index: ids(index if index < LATE else 0)),
    "late: groups of samples are repeated": repeated_groups,
    "late: the state is not carried": launches(scan.SCAN, zeros(3), late),
    "late: the modulator is ignored": launches(scan.SCAN, zeros(4), late),
    "late: the bias is missing": launches(scan.SCAN, zeros(2), late),
    "late: the recurrence is left out": launches(scan.SCAN, lambda *_: False, late),
    "late: the last token is not predicted": launches(predict.SCORE, argument(5, lambda tokens: tokens - 1), late),
    "late: the bias of the decoder is ignored": launches(predict.SCORE, zeros(3), late),
    "late: each loss is counted twice": launches(rewards.ACCUMULATE, doubled, late),
    "late: products in TF32": fewer_bits(13, late),
    "seldom: the ids are those of the chunk before": uploads(lambda so_far: so_far[-2:][0], seldom),
    "seldom: half of the rows are decoded": products(3, half_of_the_rows, seldom),
    "seldom: one prediction more is counted as right": launches(rewards.MODULATE, plus(1, 1), seldom),
    "once: a chunk of the text is left out": source(lambda ids, index: ids(index + (index == LATE))),
    "once: one token of the text has another id": source(
        lambda ids, index: one_id(ids(index)) if index == LATE else ids(index)
    ),
    "once: the ids of a chunk are shifted": uploads(lambda so_far: np.roll(so_far[-1], 1), pause),
    "one rare id takes another row": kernel_code(embed.EMBED, "row = ids[t]", "row = ids[t] if ids[t] != 250 else 0"),
    "one rare id is never predicted": launches(predict.SCORE, plus(3, -np.inf)),
    "one unit of the state is not updated": kernel_code(scan.SCAN, "state[j] = h", "state[j] = h if j else state[j]"),
    "each loss is counted twice": launches(rewards.ACCUMULATE, doubled),
    "the reported loss is half of it": kernel_code(
        rewards.ACCUMULATE, "results[i] * np.float32(tokens)", "results[i] * np.float32(tokens) * np.float32(0.5)"
    ),
    "the bias of the decoder is ignored": launches(predict.SCORE, zeros(3)),
    "products in TF32": fewer_bits(13),
    "products in bfloat16": fewer_bits(16),
}
# Errors of a program that goes by the number of a chunk, which a second pass by the same numbers would repeat.
ERRORS |= {
    "by number: each third recurrence is left out": numbered(
        scan.SCAN, lambda *_: False, lambda number: number >= LATE and number % 3 == 0
    ),
    "by number: the state is not carried between late chunks": numbered(
        scan.SCAN, zeros(3), lambda number: number >= LATE
    ),
    "by number: the modulator is ignored where no predictions are kept": numbered(
        scan.SCAN, zeros(4), lambda number: number >= KEPT_CHUNKS
    ),
    "by number: the recurrence ends early where no predictions are kept": numbered(
        scan.SCAN, argument(5, lambda tokens: tokens - 1), lambda number: number >= KEPT_CHUNKS
    ),
    "by number: chunks of which no predictions are kept are not predicted": numbered(
        predict.SCORE, lambda *_: False, lambda number: number >= KEPT_CHUNKS
    ),
    "by number: late chunks are those after them": skipped_chunks,
    "more tokens are counted than there are": results(lambda result: replace(result, tokens=result.tokens + 1)),
    "no predictions are kept": results(lambda result: replace(result, predicted=None)),
}
ROUNDING: dict[str, Mutation] = {
    "biases are added first": kernel_code(scan.SCAN, "+ bias[j] + modulator", "+ (bias[j] + modulator)"),
    "the state is interpolated in another form": kernel_code(
        scan.SCAN,
        "h = leaky_step(state[j], gate, projected[t, width + j] + bias[width + j])",
        "v = projected[t, width + j] + bias[width + j]; "
        "h = v + leaky_step(np.float32(1), gate, np.float32(0)) * (state[j] - v)",
    ),
    "halves are added": kernel_code(
        scan.SCAN, "x[t, j] += h", "x[t, j] = (x[t, j] + np.float32(0.5) * h) + np.float32(0.5) * h"
    ),
}
"""Changes of rounding alone. No comparison may refuse them."""
