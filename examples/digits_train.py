# SPDX-License-Identifier: Apache-2.0
"""Learn to read handwritten digits, each training step being one launch of a graph.

Run it with ``flambeau run examples/digits_train.py``; it is written for ``torch.cuda`` and knows
nothing of flambeau.

The forward pass, the backward pass and the optimizer's update of a small network are captured
once, after some steps on a side stream, and replayed for every batch: only the batch is copied in
between. A twin with the same first parameters takes the same first steps one operation at a time;
its parameters must be the same, bit for bit.
"""

import argparse

import numpy as np
import torch
from sklearn.datasets import load_digits

BATCH = 128
TRAINED = 1408  # of 1,797: eleven batches
WARM_UP = 3
TWIN_STEPS = 12


def data():
    """Pixels between 0 and 1 and digits, shuffled: to train with, and to test with."""
    digits = load_digits()
    order = np.random.default_rng(3).permutation(len(digits.target))
    pixels = torch.tensor((digits.data[order] / 16).astype("float32"))
    labels = torch.tensor(digits.target[order].astype("int64"))
    device = torch.device("cuda")
    pixels, labels = pixels.to(device), labels.to(device)
    return pixels[:TRAINED], labels[:TRAINED], pixels[TRAINED:], labels[TRAINED:]


class Trainer:
    """A network, its optimizer, and places that a batch is put into."""

    def __init__(self, first=None):
        self.net = torch.nn.Sequential(
            torch.nn.Linear(64, 128, device="cuda"),
            torch.nn.ReLU(),
            torch.nn.Linear(128, 10, device="cuda"),
        )
        if first is not None:
            self.net.load_state_dict(first)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.3, momentum=0.9)
        self.pixels = torch.zeros(BATCH, 64, device="cuda")
        self.labels = torch.zeros(BATCH, dtype=torch.int64, device="cuda")
        self.loss = None
        self.graph = None

    def put(self, pixels, labels):
        """Bring a batch to where the step reads it."""
        self.pixels.copy_(pixels)
        self.labels.copy_(labels)

    def step(self):
        """Forward, backward, update."""
        self.optimizer.zero_grad(set_to_none=True)
        self.loss = torch.nn.functional.cross_entropy(self.net(self.pixels), self.labels)
        self.loss.backward()
        self.optimizer.step()

    def capture(self):
        """Record a step as a graph; what warming up and recording changed is put back."""
        kept = [parameter.detach().clone() for parameter in self.net.parameters()]
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM_UP):
                self.step()
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.step()
        with torch.no_grad():
            for parameter, value in zip(self.net.parameters(), kept, strict=True):
                parameter.copy_(value)
            for state in self.optimizer.state.values():
                state["momentum_buffer"].zero_()

    def accuracy(self, pixels, labels):
        """The share of digits that are recognised."""
        with torch.no_grad():
            found = self.net(pixels).argmax(1)
        return (found == labels).float().mean().item()


def same(one, other):
    """Whether two networks have equal parameters, bit for bit."""
    return all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def main():
    """Train and report."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--epochs", type=int, default=16)
    options = parser.parse_args()
    torch.manual_seed(1)
    pixels, labels, test_pixels, test_labels = data()
    trainer = Trainer()
    twin = Trainer(trainer.net.state_dict())
    trainer.capture()
    steps, agree = 0, True
    for epoch in range(1, options.epochs + 1):
        order = torch.randperm(TRAINED, device="cuda")
        for batch in order.split(BATCH):
            trainer.put(pixels[batch], labels[batch])
            trainer.graph.replay()
            if steps < TWIN_STEPS:
                twin.put(pixels[batch], labels[batch])
                twin.step()
                agree = agree and same(trainer.net, twin.net)
            steps += 1
        if epoch in {1, 8, 16}:
            print(f"epoch {epoch:3d}  loss {trainer.loss.item():.4f}")
    print(f"{TWIN_STEPS} replays equal to eager steps, bit for bit: {'yes' if agree else 'no'}")
    print(f"steps {steps}")
    print(f"accuracy {trainer.accuracy(test_pixels, test_labels):.4f}")


if __name__ == "__main__":
    main()
