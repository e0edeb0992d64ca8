// SPDX-License-Identifier: Apache-2.0
// Attention in one kernel for 16-bit types (the scheme of T. Dao, FlashAttention-2, 2023): a block
// of four warps keeps 64 queries and walks over the keys, 64 at a time, with a running maximum and
// sum; scores never reach memory. Products are those of tensor cores, m16n8k16.
#pragma once
#include "attention.cuh"

struct AttentionShape {
  int64 query_strides[3], key_strides[3], value_strides[3];  // batch, head, token; features lie side by side
  int64 queries, keys;
  int32 heads, group;  // query heads, and how many share a key head
  int32 features;
  float scale;  // times log2(e)
};

enum { TILE = 64, ATTENTION_THREADS = 128 };

__device__ inline uint32 shared_address(const void *p) { return (uint32)__cvta_generic_to_shared(p); }
// 16 bytes from global to shared memory, zeros if not `present`.
__device__ inline void copy_async(void *to, const void *from, bool present) {
  const int bytes = present ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(bytes));
}
__device__ inline void copy_commit() { asm volatile("cp.async.commit_group;"); }
template <int LEFT> __device__ inline void copy_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(LEFT)); }

__device__ inline void load_matrices(uint32 (&r)[4], const void *row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row)));
}
__device__ inline void load_transposed(uint32 (&r)[4], const void *row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row)));
}
__device__ inline void multiply(float (&c)[4], const uint32 (&a)[4], uint32 b0, uint32 b1, float16) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ inline void multiply(float (&c)[4], const uint32 (&a)[4], uint32 b0, uint32 b1, bfloat16) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ inline uint32 packed(float low, float high, float16) {
  uint32 both;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}
__device__ inline uint32 packed(float low, float high, bfloat16) {
  uint32 both;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}
__device__ inline float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// A tile of 64 rows of D elements in shared memory. Packs of 8 elements are exchanged within a row
// so that eight rows at one column lie in different banks.
template <class T, int D> struct Tile {
  T at[TILE][D];
  __device__ T *pack(int row, int column) {
    enum { PACKS = D / 8, MIX = PACKS >= 8 ? 7 : PACKS - 1, SHIFT = PACKS >= 8 ? 0 : PACKS == 4 ? 1 : 2 };
    return &at[row][((column / 8) ^ ((row >> SHIFT) & MIX)) * 8];
  }
  __device__ void load(const T *from, int64 stride, int64 first, int64 rows, int features) {
#pragma unroll
    for (int k = threadIdx.x; k < TILE * D / 8; k += ATTENTION_THREADS) {
      const int row = k / (D / 8), column = k % (D / 8) * 8;
      const bool present = first + row < rows && column < features;
      copy_async(pack(row, column), from + (present ? (first + row) * stride + column : 0), present);
    }
  }
};

template <bool CAUSAL, int D, class T, class M>
__device__ inline void attention_forward(
    T *out, float *logs, const T *query, const T *key, const T *value, const M *mask,
    const AttentionShape &shape, const MaskLayout &layout) {
  __shared__ __align__(16) Tile<T, D> keys, values;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  // The last queries of a causal attention have most to do: they go first.
  const int64 tile = CAUSAL ? (int64)gridDim.x - 1 - blockIdx.x : blockIdx.x;
  const int64 first = tile * TILE, batch = blockIdx.y / shape.heads, head = blockIdx.y % shape.heads;
  query += batch * shape.query_strides[0] + head * shape.query_strides[1];
  key += batch * shape.key_strides[0] + head / shape.group * shape.key_strides[1];
  value += batch * shape.value_strides[0] + head / shape.group * shape.value_strides[1];
  if (mask) mask += batch * layout.strides[0] + head * layout.strides[1];

  // The queries of this warp as operands of the first product.
  uint32 q[D / 16][4];
  keys.load(query, shape.query_strides[2], first, shape.queries, shape.features);
  copy_commit();
  copy_wait<0>();
  __syncthreads();
#pragma unroll
  for (int d = 0; d < D / 16; ++d)
    load_matrices(q[d], keys.pack(warp * 16 + lane % 16, d * 16 + lane / 16 * 8));
  __syncthreads();

  const int64 last = CAUSAL && first + TILE < shape.keys ? first + TILE : shape.keys;
  keys.load(key, shape.key_strides[2], 0, shape.keys, shape.features);
  copy_commit();
  float sums[D / 8][4] = {};
  // Of the two rows that this thread has parts of.
  float most[2] = {lowest<float>(), lowest<float>()}, total[2] = {0, 0};
  const int64 row = first + warp * 16 + lane / 4;
  for (int64 start = 0; start < last; start += TILE) {
    values.load(value, shape.value_strides[2], start, shape.keys, shape.features);
    copy_commit();
    copy_wait<1>();
    __syncthreads();
    float scores[TILE / 8][4] = {};
#pragma unroll
    for (int d = 0; d < D / 16; ++d)
#pragma unroll
      for (int n = 0; n < TILE / 16; ++n) {
        uint32 b[4];
        load_matrices(b, keys.pack(n * 16 + lane % 8 + lane / 16 * 8, d * 16 + lane / 8 % 2 * 8));
        multiply(scores[2 * n], q[d], b[0], b[1], T());
        multiply(scores[2 * n + 1], q[d], b[2], b[3], T());
      }
    __syncthreads();
    if (start + TILE < last) keys.load(key, shape.key_strides[2], start + TILE, shape.keys, shape.features);
    copy_commit();

    // Only tiles at an edge need their scores looked at one by one.
    const bool edge = start + TILE > shape.keys || (CAUSAL && start + TILE > first) || mask;
    float top[2] = {most[0], most[1]};
#pragma unroll
    for (int n = 0; n < TILE / 8; ++n)
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        float &s = scores[n][k];
        s *= shape.scale;
        if (edge) {
          const int64 at = start + n * 8 + lane % 4 * 2 + k % 2, from = row + k / 2 * 8;
          if (at >= shape.keys || (CAUSAL && at > from)) s = lowest<float>();
          else if (mask && from < shape.queries) {
            const M given = mask[from * layout.strides[2] + at * layout.strides[3]];
            if constexpr (same<M, bool>::value) s = given ? s : lowest<float>();
            else s += convert<float>(given) * 1.4426950408889634f;
          }
        }
        top[k / 2] = Greatest::join(top[k / 2], s);
      }
    float shift[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      top[r] = Greatest::join(top[r], __shfl_xor_sync(0xffffffff, top[r], 1));
      top[r] = Greatest::join(top[r], __shfl_xor_sync(0xffffffff, top[r], 2));
      shift[r] = top[r] == lowest<float>() ? 0.0f : top[r];
      const float fade = power_of_two(most[r] - shift[r]);
      most[r] = top[r];
      total[r] *= fade;
#pragma unroll
      for (int d = 0; d < D / 8; ++d) sums[d][2 * r] *= fade, sums[d][2 * r + 1] *= fade;
    }
#pragma unroll
    for (int n = 0; n < TILE / 8; ++n)
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        scores[n][k] = power_of_two(scores[n][k] - shift[k / 2]);
        total[k / 2] += scores[n][k];
      }
    copy_wait<1>();
    __syncthreads();
#pragma unroll
    for (int n = 0; n < TILE / 16; ++n) {
      const uint32 p[4] = {
          packed(scores[2 * n][0], scores[2 * n][1], T()), packed(scores[2 * n][2], scores[2 * n][3], T()),
          packed(scores[2 * n + 1][0], scores[2 * n + 1][1], T()),
          packed(scores[2 * n + 1][2], scores[2 * n + 1][3], T())};
#pragma unroll
      for (int d = 0; d < D / 16; ++d) {
        uint32 b[4];
        load_transposed(b, values.pack(n * 16 + lane % 16, d * 16 + lane / 16 * 8));
        multiply(sums[2 * d], p, b[0], b[1], T());
        multiply(sums[2 * d + 1], p, b[2], b[3], T());
      }
    }
    __syncthreads();
  }
  copy_wait<0>();

  out += blockIdx.y * shape.queries * shape.features;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    total[r] += __shfl_xor_sync(0xffffffff, total[r], 1);
    total[r] += __shfl_xor_sync(0xffffffff, total[r], 2);
    const int64 at = row + r * 8;
    if (at >= shape.queries) continue;
    const float factor = total[r] == 0.0f ? 0.0f : 1.0f / total[r];
    if (logs && lane % 4 == 0)
      logs[blockIdx.y * shape.queries + at] =
          total[r] == 0.0f ? highest<float>() : (most[r] + log2f(total[r])) * 0.6931471805599453f;
#pragma unroll
    for (int d = 0; d < D / 8; ++d) {
      const int column = d * 8 + lane % 4 * 2;
      if (column < shape.features)
        *(uint32 *)(out + at * shape.features + column) =
            packed(sums[d][2 * r] * factor, sums[d][2 * r + 1] * factor, T());
    }
  }
}
