# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Launching kernels, for compiled callers."""
from flambeau.driver._table cimport CUfunction, CUgraphExec, CUstream

# True while anybody observes launches; then callers tell runtime.observers what they did.
cdef bint observed

# A stream known to be part of the capture under way, which no launch needs to ask the driver for.
cdef CUstream known_captured
cdef void forget_captured() noexcept

# Launch an executable graph, as `launch` launches a kernel.
cdef int launch_graph(CUgraphExec exec, CUstream stream) except -1
# Launch on a stream of the device whose context is current (see _state.ensure_context). Keeps the
# GIL unless many launches are pending. `parameters` is the Driver API's array of addresses.
cdef int launch(CUfunction f, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                unsigned block_x, unsigned block_y, unsigned block_z,
                unsigned dynamic_shared, CUstream stream, void** parameters) except -1
# The same for a kernel that begins with griddepcontrol.wait: its start may overlap the end of the
# work before it, where the driver offers that.
cdef int launch_overlapping(CUfunction f, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                            unsigned block_x, unsigned block_y, unsigned block_z,
                            unsigned dynamic_shared, CUstream stream, void** parameters) except -1
