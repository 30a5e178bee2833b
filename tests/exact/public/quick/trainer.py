"""The quick start of the Hugging Face Trainer, with a small GPT-2, an evaluation and a checkpoint."""

import tempfile

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments


class Tokens(Dataset):
    def __len__(self):
        return 8 * 12

    def __getitem__(self, index):
        ids = (torch.arange(32) * (index % 7 + 1)) % 512
        return {"input_ids": ids, "labels": ids}


model = GPT2LMHeadModel(GPT2Config(vocab_size=512, n_positions=32, n_embd=32, n_layer=2, n_head=2))
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        output_dir=folder, num_train_epochs=1, per_device_train_batch_size=8, logging_steps=3, eval_strategy="epoch",
        save_strategy="epoch", report_to=[], seed=3,
    )  # fmt: skip
    result = Trainer(model=model, args=arguments, train_dataset=Tokens(), eval_dataset=Tokens()).train()
    print("device", arguments.device)
print("loss", result.training_loss)
