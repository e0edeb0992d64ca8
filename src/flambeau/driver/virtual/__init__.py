# SPDX-License-Identifier: Apache-2.0
"""The virtual driver: CUDA's rules about asynchrony, memory and errors, kept without a GPU.

``machine.hpp`` and the headers below it hold the machine; ``entries/`` is the Driver API's face of
it; ``ptx/`` executes kernels. `driver.VirtualDriver` is how the rest of flambeau meets it.
"""
