"""Find the nose and the tail of a mouse in the frames of a video."""

import sys
import tempfile
import time
import zlib
from pathlib import Path

import numpy as np
import torch
from torch import nn

HEIGHT, WIDTH, FRAMES, SCALE = 800, 800, 350, 20


class FrameFile:
    """Labelled frames in one file, each of them compressed."""

    def __init__(self, path):
        self.path, self.offsets, self.shape = path, [], (HEIGHT, WIDTH)

    def write(self, frames):
        """Append compressed frames."""
        with open(self.path, "wb") as file:
            for frame in frames:
                self.offsets.append(file.tell())
                file.write(zlib.compress(frame.tobytes(), 1))
            self.offsets.append(file.tell())

    def __len__(self):
        return len(self.offsets) - 1

    def read(self, index):
        """One frame as an array."""
        first, last = self.offsets[index : index + 2]
        with open(self.path, "rb") as file:
            file.seek(first)
            return np.frombuffer(zlib.decompress(file.read(last - first)), np.uint8).reshape(self.shape)


def film(rng):
    """Frames of a moving mouse, one after the other, and where its nose and tail are."""
    points = rng.integers(80, HEIGHT - 80, (FRAMES, 2, 2))
    floor = rng.integers(20, 60, (HEIGHT, WIDTH)).astype(np.uint8)

    def frames():
        for (nose_y, nose_x), (tail_y, tail_x) in points:
            frame = floor.copy()
            frame[tail_y - 30 : tail_y + 30, tail_x - 30 : tail_x + 30] += 90
            frame[nose_y - 30 : nose_y + 30, nose_x - 30 : nose_x + 30] = 240
            yield frame

    return frames(), points


def fits_in_memory(frames, limit):
    """Whether the frames can be cached."""
    need = sum(frames.read(index).nbytes for index in range(len(frames)))
    print(f"caching needs {need / 2**20:.1f} MiB")
    return need < limit


def fits_in_memory_by_shape(frames, limit):
    """Whether the frames can be cached, from the shape of the video."""
    need = len(frames) * int(np.prod(frames.shape))
    print(f"caching needs {need / 2**20:.1f} MiB")
    return need < limit


def cache(frames):
    """All frames, as small as the network takes them."""
    small = np.stack([frames.read(index)[::SCALE, ::SCALE] for index in range(len(frames))])
    return torch.from_numpy(small)[:, None].float() / 255


def main():
    """Prepare the frames and train a network that regresses both points."""
    torch.manual_seed(8)
    with tempfile.TemporaryDirectory() as folder:
        frames = FrameFile(Path(folder) / "mouse.frames")
        pictures, points = film(np.random.default_rng(8))
        frames.write(pictures)
        target = torch.tensor(points / HEIGHT, dtype=torch.float32).flatten(1)
        model = nn.Sequential(
            nn.Conv2d(1, 8, 3, stride=2), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2), nn.ReLU(), nn.Flatten(),
            nn.Linear(16 * 9 * 9, 4),
        )  # fmt: skip
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

        begin, cpu = time.perf_counter(), time.process_time()
        check = fits_in_memory_by_shape if "--cured" in sys.argv else fits_in_memory
        if not check(frames, limit=2**30):
            raise MemoryError("use fewer frames")
        images = cache(frames)
        for epoch in range(15):
            for rows in torch.randperm(len(images)).split(16):
                loss = nn.functional.mse_loss(model(images[rows]), target[rows])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        print(f"epoch {epoch}: error {loss.item():.5f}")
        print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")


if __name__ == "__main__":
    main()
