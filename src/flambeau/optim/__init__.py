# SPDX-License-Identifier: Apache-2.0
"""Optimizers, ``torch.optim``: they change parameters by their gradients.

Examples
--------
>>> import flambeau as torch
>>> from flambeau import optim
>>> weight = torch.nn.Parameter(torch.ones(2, device="cuda"))
>>> sgd = optim.SGD([weight], lr=0.5)
>>> weight.grad = torch.tensor([1.0, 2.0], device="cuda")
>>> sgd.step()
>>> weight.tolist()
[0.5, 0.0]
"""

from flambeau.optim import lr_scheduler
from flambeau.optim.adam import Adam, AdamW
from flambeau.optim.optimizer import Optimizer
from flambeau.optim.sgd import SGD

__all__ = ["SGD", "Adam", "AdamW", "Optimizer", "lr_scheduler"]
