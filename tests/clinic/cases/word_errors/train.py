"""Train a small recogniser of spoken sentences with CTC, and report its rate of wrong words."""

import sys
import time

import numpy as np
import torch
from torch import nn

LETTERS = " abcdefghijklmnopqrstuvwxyz"
SYLLABLES = "ba ce di fo gu ha je ki lo mu na pe ri so tu va we".split()
WORDS = [first + second + "n" for first in SYLLABLES[:9] for second in SYLLABLES]


def utterance(rng):
    """A sentence and its features: noisy spectra of each letter, held for some frames."""
    text = " ".join(rng.choice(WORDS, 5))
    codes = np.array([LETTERS.index(c) for c in text])
    frames = np.repeat(codes, rng.integers(2, 4, len(codes)))
    spectrum = np.eye(len(LETTERS), 40)[frames] + rng.normal(0, 0.5, (len(frames), 40))
    return text, torch.tensor(codes + 1), torch.tensor(spectrum, dtype=torch.float32)


def edit_distance(a, b):
    """How many changes make b of a."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        last, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            last, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, last + (x != y))
    return row[-1]


def correct(word):
    """The word of the language that is closest to a heard one."""
    if word in WORDS:
        return word
    return min(WORDS, key=lambda known: edit_distance(word, known))


def decode(log_probs):
    """The text of the best path, with its spelling corrected."""
    best = log_probs.argmax(-1)
    codes = torch.unique_consecutive(best).tolist()
    heard = "".join(LETTERS[c - 1] for c in codes if c)
    return [correct(word) for word in heard.split()]


def word_error_rate(log_probs, lengths, texts):
    """Wrong words for each word that was said."""
    wrong = said = 0
    for sample, length, text in zip(log_probs.unbind(1), lengths.tolist(), texts, strict=True):
        wrong += edit_distance(decode(sample[:length]), text.split())
        said += len(text.split())
    return wrong / said


class Recogniser(nn.Module):
    """Convolutions over time."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv1d(40, 96, 7, padding=3), nn.ReLU(), nn.Conv1d(96, 96, 5, padding=2), nn.ReLU(),
            nn.Conv1d(96, len(LETTERS) + 1, 1),
        )  # fmt: skip

    def forward(self, x):
        """Log-probabilities of letters for each frame, time first."""
        return self.layers(x.transpose(1, 2)).permute(2, 0, 1).log_softmax(-1)


def main():
    """Train, and tell the loss and the rate of wrong words of the batches."""
    torch.manual_seed(9)
    rng = np.random.default_rng(9)
    corpus = [utterance(rng) for _ in range(200)]
    model = Recogniser()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    display_step = 20 if "--cured" in sys.argv else 1

    begin, cpu = time.perf_counter(), time.process_time()
    for step in range(140):
        texts, targets, sounds = zip(*(corpus[i] for i in rng.integers(0, len(corpus), 8)), strict=True)
        lengths = torch.tensor([len(s) for s in sounds])
        log_probs = model(nn.utils.rnn.pad_sequence(sounds, batch_first=True))
        sizes = torch.tensor([len(t) for t in targets])
        loss = nn.functional.ctc_loss(log_probs, torch.cat(targets), lengths, sizes, zero_infinity=True)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % display_step == 0:
            rate = word_error_rate(log_probs.detach(), lengths, texts)
            print(f"step {step}: loss {loss.item():.3f}, wrong words {rate:.0%}")
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")


if __name__ == "__main__":
    main()
