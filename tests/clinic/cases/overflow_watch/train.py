"""Train a small GPT-2 on arithmetic sequences with the Trainer."""

import argparse
import tempfile
import time

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed


def sequences(count, length, vocabulary):
    """Yield sequences that grow by a constant step."""
    for start, stride in torch.randint(1, vocabulary, (count, 2)).tolist():
        ids = torch.arange(length).mul(stride).add(start) % vocabulary
        yield {"input_ids": ids, "labels": ids.clone()}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--debug", default="underflow_overflow", help="checks of the Trainer; empty: none")
    options = parser.parse_args()
    set_seed(0)
    config = GPT2Config(vocab_size=97, n_positions=32, n_embd=96, n_layer=6, n_head=4, bos_token_id=0, eos_token_id=0)
    with tempfile.TemporaryDirectory() as folder:
        settings = TrainingArguments(
            output_dir=folder,
            max_steps=45,
            per_device_train_batch_size=4,
            learning_rate=5e-4,
            logging_steps=15,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
            debug=options.debug,
        )
        trainer = Trainer(model=GPT2LMHeadModel(config), args=settings, train_dataset=list(sequences(400, 32, 97)))
        begin, cpu = time.perf_counter(), time.process_time()
        result = trainer.train()
        print(f"loss {result.training_loss:.3f} after {result.global_step} steps")
        print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")


if __name__ == "__main__":
    main()
