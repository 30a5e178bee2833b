"""Speech to letters with CTC. The first epoch goes from short to long recordings, as a curriculum."""

import time

import torch
from torch import nn

BANDS, LETTERS, BATCH = 40, 28, 12


def recordings(count):
    """Spectrograms whose lengths differ as those of read sentences do, with their letters."""
    patterns = torch.randn(LETTERS, BANDS)
    found = []
    for _ in range(count):
        letters = torch.randint(1, LETTERS, (int(torch.randint(4, 48, ())),))
        frames = patterns[letters].repeat_interleave(5, dim=0)
        found.append((frames + 0.4 * torch.randn_like(frames), letters))
    return found


def curriculum(samples):
    ordered = sorted(samples, key=lambda sample: len(sample[0]))
    return [ordered[first : first + BATCH] for first in range(0, len(ordered), BATCH)]


def collate(batch):
    frames, letters = zip(*batch, strict=True)
    lengths = torch.tensor([len(frame) for frame in frames])
    sizes = torch.tensor([len(letter) for letter in letters])
    return nn.utils.rnn.pad_sequence(frames, batch_first=True), lengths, torch.cat(letters), sizes


class Recognizer(nn.Module):
    def __init__(self, hidden=96):
        super().__init__()
        self.front = nn.Conv1d(BANDS, hidden, 5, stride=2, padding=2)
        self.layers = nn.LSTM(hidden, hidden, num_layers=2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * hidden, LETTERS)

    def forward(self, frames):
        hidden = torch.relu(self.front(frames.transpose(1, 2))).transpose(1, 2)
        return self.head(self.layers(hidden)[0])


def main():
    torch.manual_seed(19)
    batches = curriculum(recordings(600))
    model = Recognizer()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    criterion = nn.CTCLoss(zero_infinity=True)
    begin, cpu = time.perf_counter(), time.process_time()
    total = torch.zeros(())
    for number, batch in enumerate(batches, 1):
        frames, lengths, letters, sizes = collate(batch)
        scores = model(frames).log_softmax(2).transpose(0, 1)
        loss = criterion(scores, letters, (lengths + 1) // 2, sizes)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        total += loss.detach()
        if number % 10 == 0:
            print(f"batch {number} of {len(batches)}, {frames.shape[1]} frames: loss {total / number:.4f}")
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")


if __name__ == "__main__":
    main()
