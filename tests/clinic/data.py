"""Generated data for the public programs; the same bytes each time."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np

_TEXT: Final = "the device waits while host cuts every sentence into pieces again and a model learns to guess them"


def make(name: str, folder: Path) -> None:
    """Make the data called `name` in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    GENERATORS[name](folder)


def mnist(folder: Path, train: int = 3_200, test: int = 500) -> None:
    """MNIST's files with random images, so many for training and for testing."""
    raw = folder / "MNIST" / "raw"
    raw.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    for prefix, count in (("train", train), ("t10k", test)):
        images = random.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        labels = random.integers(0, 10, count, dtype=np.uint8)
        (raw / f"{prefix}-images-idx3-ubyte").write_bytes(struct.pack(">IIII", 2051, count, 28, 28) + images.tobytes())
        (raw / f"{prefix}-labels-idx1-ubyte").write_bytes(struct.pack(">II", 2049, count) + labels.tobytes())


def words(folder: Path) -> None:
    """Texts of words: train.txt, valid.txt and test.txt, and input.txt for models of characters.

    Their first line is the context from which minGPT samples.
    """
    random = np.random.default_rng(0)
    for name, lines in (("train", 2_999), ("valid", 300), ("test", 300), ("input", 6_000)):
        text = "O God, O God!\n" + "\n".join(" ".join(random.choice(_TEXT.split(), 12)) for _ in range(lines))
        (folder / f"{name}.txt").write_text(text + "\n")


def characters(folder: Path) -> None:
    """nanoGPT's train.bin, val.bin and meta.pkl of a text."""
    import pickle

    words(folder)
    text = (folder / "input.txt").read_text()
    letters = sorted(set(text))
    numbers = {letter: number for number, letter in enumerate(letters)}
    ids = np.array([numbers[letter] for letter in text], dtype=np.uint16)
    cut = len(ids) * 9 // 10
    ids[:cut].tofile(folder / "train.bin")
    ids[cut:].tofile(folder / "val.bin")
    meta = {"vocab_size": len(letters), "itos": dict(enumerate(letters)), "stoi": numbers}
    (folder / "meta.pkl").write_bytes(pickle.dumps(meta))


def images(folder: Path) -> None:
    """A folder of JPEG images in two classes, for training and validation, as ImageNet's."""
    from PIL import Image

    random = np.random.default_rng(0)
    for part, count in (("train", 120), ("val", 24)):
        for label in ("cat", "dog"):
            target = folder / "imagenet" / part / label
            target.mkdir(parents=True, exist_ok=True)
            for number in range(count):
                pixels = random.integers(0, 256, (24, 32, 3), dtype=np.uint8)
                Image.fromarray(pixels).resize((500, 375), Image.Resampling.BICUBIC).save(target / f"{number}.jpg")


GENERATORS: Final[dict[str, Callable[[Path], None]]] = {
    "mnist": mnist,
    "words": words,
    "characters": characters,
    "images": images,
}
