# SPDX-License-Identifier: Apache-2.0
"""Testing GPU programs: `assert_close`, and the pytest plug-in `flambeau.testing.plugin`."""

from flambeau.testing._comparison import assert_close

__all__ = ["assert_close"]

assert_close.__module__ = __name__
