"""Learn sentence vectors by contrast; the text is tokenized as the batches are made."""

import random
import sys
import tempfile
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader
from transformers import BertTokenizer
from transformers.models.bert.tokenization_bert_legacy import BertTokenizerLegacy

SYLLABLES = [one + two for one in "bdfgklmnprstvz" for two in "aeiou"]


def document():
    words = ("".join(random.choices(SYLLABLES, k=random.randint(1, 4))) for _ in range(220))
    return " ".join(word.title() + random.choice(["", "", ",", "."]) for word in words)


def load_tokenizer(folder):
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ",", ".", *SYLLABLES, *("##" + s for s in SYLLABLES)]
    path = Path(folder) / "vocab.txt"
    path.write_text("\n".join(vocabulary))
    if "--cured" in sys.argv:
        return BertTokenizer.from_pretrained(folder)
    return BertTokenizerLegacy(str(path))


class Spans:
    """Collates two spans of each document."""

    def __init__(self, tokenizer, words=90):
        self.tokenizer, self.words = tokenizer, words

    def __call__(self, texts):
        return [self.tokenizer([self.span(text) for text in texts], padding=True, return_tensors="pt") for _ in "12"]

    def span(self, text):
        words = text.split()
        start = random.randrange(len(words) - self.words)
        return " ".join(words[start : start + self.words])


class Pooled(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.words, self.top = nn.EmbeddingBag(200, width, padding_idx=0), nn.Linear(width, width)

    def forward(self, batch):
        return nn.functional.normalize(self.top(self.words(batch["input_ids"])), dim=-1)


random.seed(0)
torch.manual_seed(0)
with tempfile.TemporaryDirectory() as folder:
    loader = DataLoader([document() for _ in range(640)], batch_size=16, collate_fn=Spans(load_tokenizer(folder)))
model = Pooled()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
begin, cpu = time.perf_counter(), time.process_time()
for one, two in loader:
    scores = model(one) @ model(two).T / 0.05
    loss = nn.functional.cross_entropy(scores, torch.arange(len(scores)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"loss {loss.item():.4f}")
print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")
