"""Train a classifier whose snapshots are judged beside the training."""

import argparse
import time

import torch
from judge import judge, network
from torch import multiprocessing, nn


class Judges:
    """A few processes that share one queue of snapshots."""

    def __init__(self, count, threads):
        context = multiprocessing.get_context("spawn")
        self.jobs, self.answers = context.Queue(), context.Queue()
        arguments = (self.jobs, self.answers, threads)
        self.processes = [context.Process(target=judge, args=arguments, daemon=True) for _ in range(count)]
        for process in self.processes:
            process.start()
        self.asked = 0

    def ask(self, step, model):
        self.jobs.put((step, {name: tensor.clone() for name, tensor in model.state_dict().items()}))
        self.asked += 1

    def collect(self):
        for _ in self.processes:
            self.jobs.put(None)
        found = sorted(self.answers.get() for _ in range(self.asked))
        for process in self.processes:
            process.join()
        return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=160)
    parser.add_argument("--judges", type=int, default=2)
    parser.add_argument("--judge-threads", type=int, default=0, help="0: leave it to torch")
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = network()
    judges = Judges(options.judges, options.judge_threads)
    judges.ask(0, model)
    judges.ask(0, model)
    for _ in range(2):
        judges.answers.get()
    judges.asked = 0
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin, cpu = time.perf_counter(), time.process_time()
    for step in range(1, options.steps + 1):
        rows = torch.randn(256, 96)
        loss = nn.functional.cross_entropy(model(rows), rows[:, :12].argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            judges.ask(step, model)
    for step, accuracy in judges.collect():
        print(f"step {step}: {accuracy:.3f}")
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")


if __name__ == "__main__":
    main()
