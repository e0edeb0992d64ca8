# SPDX-License-Identifier: Apache-2.0
"""What other libraries use of flambeau, and what flambeau uses of theirs.

Arrays cross by DLPack (`flambeau.utils.dlpack`), by the CUDA array interface, and on the host by
Python's buffers; streams cross by ``__cuda_stream__``. ``flambeau.interop.triton`` launches Triton
kernels on tensors.
"""
