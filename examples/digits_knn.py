# SPDX-License-Identifier: Apache-2.0
"""Recognise handwritten digits by their nearest neighbours, with copies hidden behind computation.

Run it with ``flambeau run examples/digits_knn.py``; it is written for ``torch.cuda`` and knows
nothing of flambeau.

The 1,797 scanned digits of scikit-learn have 8 x 8 pixels with whole values from 0 to 16. The first
1,000 are known; each of the others gets the digit that most of its five nearest neighbours have.
Batches wait in pinned memory, travel on one stream and are compared on another, through two
buffers on the GPU. Two kinds of events keep the order: a batch is read only when it has arrived,
and a buffer is overwritten only when it has been read.

All distances are whole numbers that float32 holds exactly, so the GPU's answers must be those of
NumPy, one by one.
"""

import argparse
import sys
import time

import numpy as np
import torch
from sklearn.datasets import load_digits

KNOWN = 1000
NEIGHBOURS = 5
DIGITS = 10
BUFFERS = 2


class Progress:
    """A bar that is drawn in place on a terminal; elsewhere it is one line at the end."""

    def __init__(self, total: int, width: int = 32) -> None:
        self.total, self.width, self.done = total, width, 0
        self.start = time.perf_counter()

    def advance(self) -> None:
        """One more batch is done."""
        self.done += 1
        finished = self.done == self.total
        if not (sys.stderr.isatty() or finished):
            return
        filled = self.width * self.done // self.total
        bar = "#" * filled + "." * (self.width - filled)
        seconds = time.perf_counter() - self.start
        line = f"[{bar}] {self.done}/{self.total} batches, {seconds:.1f} s"
        print("\r" * sys.stderr.isatty() + line, end="\n" * finished, file=sys.stderr, flush=True)


class Classifier:
    """The known digits on the GPU, and the arithmetic of one batch."""

    def __init__(self, images: np.ndarray, labels: np.ndarray, device: torch.device) -> None:
        known = torch.from_numpy(images).to(device)
        self.known_t = known.t()
        self.squares = (known * known).sum(dim=1)
        self.order = torch.arange(len(images), dtype=torch.float32, device=device)
        self.votes = torch.from_numpy(np.eye(DIGITS, dtype=np.float32)[labels]).to(device)

    def __call__(self, batch: torch.Tensor) -> torch.Tensor:
        """The digits of a batch of images, int64."""
        distance = self.squares + (batch * batch).sum(dim=1, keepdim=True)
        distance = distance - 2 * (batch @ self.known_t)
        # Of two neighbours at the same distance the earlier one counts as nearer.
        key = distance * KNOWN + self.order
        _, nearest = key.topk(NEIGHBOURS, dim=1, largest=False)
        return self.votes[nearest].sum(dim=1).argmax(dim=1)


def classify(
    images: np.ndarray, classifier: Classifier, batch_size: int
) -> "tuple[np.ndarray, dict]":
    """Send all images through the GPU; their digits and what took how long in milliseconds."""
    count = len(images)
    waiting = torch.from_numpy(images).pin_memory()
    answers = torch.empty(count, dtype=torch.int64).pin_memory()
    buffers = [torch.empty(batch_size, images.shape[1], device="cuda") for _ in range(BUFFERS)]
    copies, compute = torch.cuda.Stream(), torch.cuda.Stream()
    batches = range(0, count, batch_size)
    marks = [[torch.cuda.Event(enable_timing=True) for _ in range(4)] for _ in batches]
    begin = torch.cuda.Event(enable_timing=True)

    torch.cuda.synchronize()  # the buffers and the known digits are ready for every stream
    progress = Progress(len(batches))
    begin.record(copies)
    for number, first in enumerate(batches):
        rows = min(batch_size, count - first)
        buffer = buffers[number % BUFFERS][:rows]
        copy_start, arrived, compute_start, finished = marks[number]
        with torch.cuda.stream(copies):
            if number >= BUFFERS:
                copies.wait_event(marks[number - BUFFERS][3])  # its buffer has been read
            copy_start.record()
            buffer.copy_(waiting[first : first + rows], non_blocking=True)
            arrived.record()
        with torch.cuda.stream(compute):
            compute.wait_event(arrived)
            compute_start.record()
            digits = classifier(buffer)
            answers[first : first + rows].copy_(digits, non_blocking=True)
            finished.record()
        if number >= BUFFERS:
            marks[number - BUFFERS][3].synchronize()
            progress.advance()
    for mark in marks[-BUFFERS:]:
        mark[3].synchronize()
        progress.advance()
    times = {
        "copies": sum(m[0].elapsed_time(m[1]) for m in marks),
        "computation": sum(m[2].elapsed_time(m[3]) for m in marks),
        "all together": begin.elapsed_time(marks[-1][3]),
    }
    return answers.numpy(), times


def classify_on_cpu(images: np.ndarray, known: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The same rule in NumPy."""
    distance = (known * known).sum(1) + (images * images).sum(1, keepdims=True)
    distance = distance - 2 * (images @ known.T)
    nearest = np.argsort(distance * KNOWN + np.arange(KNOWN), axis=1)[:, :NEIGHBOURS]
    return np.eye(DIGITS)[labels][nearest].sum(axis=1).argmax(axis=1)


def main() -> int:
    """Classify, compare with NumPy and report; 0 if the answers are the same."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--batch", type=int, default=64, help="images in a batch (default: 64)")
    batch_size = parser.parse_args().batch

    images, labels = load_digits(return_X_y=True)
    images = images.astype(np.float32)
    known, known_labels = images[:KNOWN], labels[:KNOWN]
    unknown, truth = images[KNOWN:], labels[KNOWN:]

    device = torch.device("cuda", torch.cuda.current_device())
    print(
        f"{len(unknown)} digits against {KNOWN} known ones on {torch.cuda.get_device_name(device)}"
    )
    classifier = Classifier(known, known_labels, device)
    classifier(torch.zeros(1, known.shape[1], device=device))  # compiles the kernels
    answers, times = classify(unknown, classifier, batch_size)
    expected = classify_on_cpu(unknown, known, known_labels)

    same = bool((answers == expected).all())
    print(f"accuracy {(answers == truth).mean():.4f}")
    print(f"the same answers as NumPy: {'yes' if same else 'NO'}")
    for what, milliseconds in times.items():
        print(f"{what:<14} {milliseconds:8.3f} ms of GPU time")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
