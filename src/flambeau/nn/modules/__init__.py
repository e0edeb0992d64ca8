# SPDX-License-Identifier: Apache-2.0
"""The modules of ``torch.nn``."""

from flambeau.nn.modules import (
    activation,
    attention,
    container,
    dropout,
    linear,
    loss,
    normalization,
)
from flambeau.nn.modules.activation import *  # noqa: F403
from flambeau.nn.modules.attention import *  # noqa: F403
from flambeau.nn.modules.container import *  # noqa: F403
from flambeau.nn.modules.dropout import *  # noqa: F403
from flambeau.nn.modules.linear import *  # noqa: F403
from flambeau.nn.modules.loss import *  # noqa: F403
from flambeau.nn.modules.module import Module
from flambeau.nn.modules.normalization import *  # noqa: F403

__all__ = ["Module"]
for _part in (activation, attention, container, dropout, linear, loss, normalization):
    __all__ += _part.__all__
