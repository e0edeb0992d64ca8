# SPDX-License-Identifier: Apache-2.0
"""Neural networks, ``torch.nn``: modules, their parameters, and functions.

Examples
--------
>>> import flambeau as torch
>>> net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU(), torch.nn.Linear(3, 1))
>>> sum(parameter.numel() for parameter in net.parameters())
13
"""

from flambeau.nn import functional, init, modules, utils
from flambeau.nn.modules import *  # noqa: F403
from flambeau.nn.parameter import Buffer, Parameter

__all__ = ["Buffer", "Parameter", "functional", "init", "modules", "utils"]
__all__ += modules.__all__
