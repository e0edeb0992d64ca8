// SPDX-License-Identifier: Apache-2.0
// The frame of every elementwise kernel. ops/codegen.py writes a functor `Op`, the types and the
// kernel's signature, and instantiates one of the two bodies below:
//   contiguous: each thread does V neighbouring elements with one wide access per operand
//   strided:    each thread does one element, at offsets computed with a 32- or 64-bit index
#pragma once
#include "math.cuh"

// A tensor operand: loaded as In, seen by the functor as Arithmetic after a conversion to Compute.
template <class In, class Compute> struct Operand {
  typedef typename arithmetic<Compute>::type Arithmetic;
  __device__ static Arithmetic from(In x) { return convert<Arithmetic>(convert<Compute>(x)); }
};

template <class Out, class Result, class Value> __device__ inline Out store_as(Value value) {
  return convert<Out>(convert<Result>(value));
}

__device__ inline int64 linear_thread() { return blockIdx.x * (int64)blockDim.x + threadIdx.x; }
