# SPDX-License-Identifier: Apache-2.0
"""What ``import torch`` finds in a child process of ``flambeau run``: a step to the real answer."""

import sys
from pathlib import Path

try:
    import flambeau
except ModuleNotFoundError as error:
    if error.name != "flambeau":
        raise
    # The parent had it from a folder that this process was not told of.
    sys.path.append(str(Path(__file__).parents[4]))
    import flambeau  # noqa: F401

from flambeau import _torch_face

_torch_face.install()
