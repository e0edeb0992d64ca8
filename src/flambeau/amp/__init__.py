# SPDX-License-Identifier: Apache-2.0
"""Mixed precision: the scaling of gradients."""

from __future__ import annotations

from flambeau.amp.grad_scaler import GradScaler

__all__ = ["GradScaler"]
