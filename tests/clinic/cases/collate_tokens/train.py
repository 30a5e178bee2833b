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
        split = [text.split() for text in texts]
        for start in random.sample(range(220 - self.words), 2):
            spans = [" ".join(words[start : start + self.words]) for words in split]
            yield self.tokenizer(spans, padding=True, return_tensors="pt")


random.seed(0)
torch.manual_seed(0)
with tempfile.TemporaryDirectory() as folder:
    loader = DataLoader([document() for _ in range(640)], batch_size=16, collate_fn=Spans(load_tokenizer(folder)))
model = nn.Sequential(nn.EmbeddingBag(200, 128, padding_idx=0), nn.Linear(128, 128), nn.LayerNorm(128))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
begin, cpu = time.perf_counter(), time.process_time()
for one, two in loader:
    scores = model(one["input_ids"]) @ model(two["input_ids"]).T / 128
    loss = nn.functional.cross_entropy(scores, torch.arange(len(scores)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"loss {loss.item():.4f}")
print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")
