// SPDX-License-Identifier: Apache-2.0
// Stores that say how long the cache shall keep what they write.
#pragma once
#include "types.cuh"

// What is stored here leaves the cache first, so that what is read again stays.
template <class Pack> __device__ inline void store_passing(Pack *to, const Pack &pack) {
  if constexpr (sizeof(Pack) == 16) __stcs((uint4 *)to, *(const uint4 *)&pack);
  else *to = pack;
}
