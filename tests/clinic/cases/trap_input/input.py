"""A training on data that is read, tokenized and padded in ways that can be slow.

`--ill` makes it ill, `--cured` has the same work without the illness; without either it is healthy.
"""

import argparse
import io
import os
import random
import tempfile
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

CASES = ("inline-tokenization", "starved-prefetch", "per-element-reads", "io-bound-input", "padding", "small-batch")
parser = argparse.ArgumentParser()
parser.add_argument("--ill", action="append", default=[], choices=CASES)
parser.add_argument("--cured", action="append", default=[], choices=CASES)
parser.add_argument("--steps", type=int, default=200)
args = parser.parse_args()
ill = set(args.ill)
cases = ill | set(args.cured)
torch.manual_seed(0)
torch.set_num_threads(1)
random.seed(0)
folder = tempfile.TemporaryDirectory()
WIDTH, ITEM_BYTES, ITEMS = 256, 1 << 18, 128
WORDS = ["".join(random.choices("abcdefghijklmnop", k=random.randint(2, 9))) for _ in range(2000)]


class Stored(Dataset):
    """Items of one file. The system keeps none of it in memory, as with a data set that is larger than the memory.

    The file stays for the next run, as data sets do. A trial keeps what its program writes in memory, and reads of
    such a file do not wait.
    """

    def __init__(self, on_disk):
        self.path, self.on_disk = f"{tempfile.gettempdir()}/profiler-trap-{ITEM_BYTES}x{ITEMS}.bin", on_disk
        if not os.path.exists(self.path):
            with open(f"{folder.name}/items.bin", "wb") as file:
                file.write(os.urandom(ITEM_BYTES * ITEMS))
                file.flush()
                os.fsync(file.fileno())
            os.replace(file.name, self.path)
        self.descriptor = os.open(self.path, os.O_RDONLY)
        self.memory = memoryview(b"" if on_disk else os.pread(self.descriptor, ITEM_BYTES * ITEMS, 0))

    def __len__(self):
        return 64 * 1024

    def __getitem__(self, index):
        begin = index % ITEMS * ITEM_BYTES
        if self.on_disk:
            os.posix_fadvise(self.descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            content = os.pread(self.descriptor, ITEM_BYTES, begin)  # ill: io-bound-input
        else:
            content = self.memory[begin : begin + ITEM_BYTES]
        row = torch.frombuffer(bytearray(content[:WIDTH]), dtype=torch.uint8)
        return row.float() / 255, index % 10


class Uneven(Dataset):
    """Items of which a few take much longer."""

    def __len__(self):
        return 64 * 1024

    def __getitem__(self, index):
        rounds = 1200 if index // 16 % 12 == 11 else 2
        row = torch.ones(WIDTH)
        for _ in range(rounds):
            row = torch.sin(row) + index % 7
        return row, index % 10


class Points(Dataset):
    """Cheap items."""

    def __init__(self, size):
        self.rows = torch.randn(size, WIDTH)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index], index % 10


class Texts(Dataset):
    """Texts of 8 to 128 tokens; in the healthy form those of a batch are of similar length."""

    def __init__(self, is_sorted):
        lengths = [random.choice((8, 12, 16, 24, 128)) for _ in range(16 * 256)]
        if is_sorted:
            lengths.sort()
            batches = [lengths[i : i + 16] for i in range(0, len(lengths), 16)]
            random.shuffle(batches)
            lengths = [length for batch in batches for length in batch]
        self.texts = [torch.randint(1, 1000, (length,)) for length in lengths]

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, index):
        return self.texts[index], index % 10


def pad(items):
    texts = nn.utils.rnn.pad_sequence([text for text, _ in items], batch_first=True)  # ill: padding
    return texts, torch.tensor([label for _, label in items])


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(1000, WIDTH)
        self.body = nn.Sequential(nn.Linear(WIDTH, 512), nn.ReLU(), nn.Linear(512, WIDTH))
        self.head = nn.Linear(WIDTH, 10)

    def forward(self, tokens):
        return self.head(self.body(self.embedding(tokens)).mean(1))


def tokenizer():
    import sentencepiece

    model = io.BytesIO()
    text = (" ".join(random.choices(WORDS, k=20)) for _ in range(1000))
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=text, model_writer=model, vocab_size=400, minloglevel=2)
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def text_batches():
    """Endless batches of texts as token ids, encoded before the training or for each batch."""
    model = tokenizer()
    texts = [" ".join(random.choices(WORDS, k=600)) for _ in range(256)]
    known = [] if "inline-tokenization" in ill else [model.encode(text)[:64] for text in texts]
    labels = torch.arange(16) % 10
    while True:
        chosen = random.sample(range(len(texts)), 16)
        if known:
            rows = [known[number] for number in chosen]
        else:
            rows = [model.encode(texts[number])[:64] for number in chosen]  # ill: inline-tokenization
        yield torch.tensor(rows), labels


def loader():
    if "io-bound-input" in cases:
        return DataLoader(Stored("io-bound-input" in ill), 8)  # ill: loader
    if "starved-prefetch" in cases:
        ahead = 1 if "starved-prefetch" in ill else 12
        return DataLoader(Uneven(), 16, num_workers=1, prefetch_factor=ahead)  # ill: loader
    if "padding" in cases:
        return DataLoader(Texts("padding" not in ill), 16, collate_fn=pad)  # ill: texts
    if "small-batch" in cases:
        return DataLoader(Points(8 * 12 + 2), 8 if "small-batch" in ill else 64)  # ill: small-batch
    return DataLoader(Points(64 * 40), 64)


def batches():
    if "inline-tokenization" in cases:
        yield from text_batches()
    source = loader()
    while True:
        yield from source


is_text = cases & {"inline-tokenization", "padding"}
wide = 1024 if cases & {"starved-prefetch", "io-bound-input"} else 512
net = (
    Reader()
    if is_text
    else nn.Sequential(nn.Linear(WIDTH, wide), nn.ReLU(), nn.Linear(wide, wide), nn.ReLU(), nn.Linear(wide, 10))
)
if "small-batch" in cases:
    layers = [layer for _ in range(12) for layer in (nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH), nn.GELU())]
    net = nn.Sequential(*layers, nn.Linear(WIDTH, 10))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
criterion = nn.CrossEntropyLoss()
warm, begin = args.steps // 5, 0.0
repeats = 4 if "starved-prefetch" in cases else 1
for step, (inputs, labels) in enumerate(batches(), 1):
    for _ in range(repeats):
        outputs = net(inputs)
        loss = criterion(outputs, labels)
        optimizer.zero_grad()
        loss.backward()
    optimizer.step()
    if "per-element-reads" in ill:
        correct = 0
        for row, label in zip(outputs.argmax(1), labels, strict=True):
            for _ in range(4):
                correct += row.item() == label.item()  # ill: per-element-reads
    elif "per-element-reads" in cases:
        correct = 4 * (outputs.argmax(1) == labels).sum().item()
    if step == warm:
        begin, cpu = time.perf_counter(), time.process_time()
    if step == args.steps:
        break
print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")
