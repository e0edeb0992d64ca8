// SPDX-License-Identifier: Apache-2.0
// Attention in one kernel for 16-bit types (the scheme of T. Dao, FlashAttention-2, 2023): a block
// of four warps keeps 64 or 128 queries and walks over tiles of keys with a running maximum and sum;
// scores never reach memory. Products are those of tensor cores, m16n8k16.
#pragma once
#include "attention.cuh"

struct AttentionShape {
  // Of batch, head and token; features lie side by side.
  int64 query_strides[3], key_strides[3], value_strides[3], grad_strides[3];
  int64 queries, keys;
  int32 heads, group;  // query heads, and how many share a key head
  int32 features;
  float scale;  // times log2(e)
};

enum { ATTENTION_THREADS = 128 };

__device__ inline uint32 shared_address(const void *p) { return (uint32)__cvta_generic_to_shared(p); }
// 16 bytes from global to shared memory, zeros if not `present`.
__device__ inline void copy_async(uint32 to, const void *from, bool present) {
  const int bytes = present ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes));
}
__device__ inline void copy_commit() { asm volatile("cp.async.commit_group;"); }
template <int LEFT> __device__ inline void copy_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(LEFT)); }

__device__ inline void load_matrices(uint32 (&r)[4], uint32 row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(row));
}
__device__ inline void load_transposed(uint32 (&r)[4], uint32 row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(row));
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

// Rows of D elements in shared memory. Packs of 8 elements are exchanged within a row so that eight
// rows at one column lie in different banks; rows that lie 8 apart are alike in that.
template <class T, int ROWS, int D> struct Tile {
  T at[ROWS][D];
  // Bytes from the start of a row to a pack.
  __device__ static uint32 mixed(int row, int pack) {
    enum { PACKS = D / 8, MIX = PACKS >= 8 ? 7 : PACKS - 1, SHIFT = PACKS >= 8 ? 0 : 1 };
    return (pack ^ ((row >> SHIFT) & MIX)) * 16;
  }
  __device__ void load(const T *from, int64 stride, int64 first, int64 rows, int features) {
    enum { STEP = ATTENTION_THREADS / (D / 8) };
    const int row = threadIdx.x / (D / 8), pack = threadIdx.x % (D / 8);
    const uint32 to = shared_address(at[row]) + mixed(row, pack);
    const T *source = from + (first + row) * stride + pack * 8;
    const int left = pack * 8 < features ? (int)(rows - first < ROWS ? rows - first : ROWS) : 0;
#pragma unroll
    for (int k = 0; k < ROWS / STEP; ++k) {
      const bool present = row + k * STEP < left;
      copy_async(to + k * STEP * D * 2, present ? source + k * STEP * stride : from, present);
    }
  }
};

// Scores of one tile of keys, with those left out that a query does not see.
template <bool CAUSAL, bool MASKED, class M> struct Visible {
  const M *mask;  // of the first query of the warp and the first key of the tile
  int64 query_stride, key_stride;
  int queries, keys, ahead;  // what is left of both; how far the query is ahead of the key
  __device__ inline float operator()(float score, int query, int key) const {
    if (key >= keys || (CAUSAL && key > query + ahead)) return lowest<float>();
    if constexpr (MASKED) {
      if (query >= queries) return score;
      const M given = mask[query * query_stride + key * key_stride];
      if constexpr (same<M, bool>::value) return given ? score : lowest<float>();
      else return score + convert<float>(given) * 1.4426950408889634f;
    }
    return score;
  }
};

// Each warp has MT times 16 queries.
template <bool CAUSAL, bool MASKED, int D, int MT, class T, class M>
__device__ inline void attention_forward(
    T *out, float *logs, const T *query, const T *key, const T *value, const M *mask,
    const AttentionShape &shape, const MaskLayout &layout) {
  enum { ROWS = 64 * MT, KEYS = D * MT > 128 ? 32 : 64 };
  constexpr bool KEEP = D <= 64;  // the queries in registers
  __shared__ __align__(16) Tile<T, ROWS, D> queries;
  __shared__ __align__(16) Tile<T, KEYS, D> keys, values;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  // The last queries of a causal attention have most to do: they go first.
  const int64 tile = CAUSAL ? (int64)gridDim.x - 1 - blockIdx.x : blockIdx.x;
  const int64 first = tile * ROWS, batch = blockIdx.y / shape.heads, head = blockIdx.y % shape.heads;
  query += batch * shape.query_strides[0] + head * shape.query_strides[1];
  key += batch * shape.key_strides[0] + head / shape.group * shape.key_strides[1];
  value += batch * shape.value_strides[0] + head / shape.group * shape.value_strides[1];
  const uint32 key_row = shared_address(keys.at[lane % 8 + lane / 16 * 8]);
  const uint32 value_row = shared_address(values.at[lane % 16]);
  auto key_column = [&](int d) { return keys.mixed(lane % 8, d * 2 + lane / 8 % 2); };
  auto value_column = [&](int d) { return values.mixed(lane % 8, d * 2 + lane / 16); };

  queries.load(query, shape.query_strides[2], first, shape.queries, shape.features);
  keys.load(key, shape.key_strides[2], 0, shape.keys, shape.features);
  copy_commit();
  auto load_queries = [&](uint32 (&a)[4], int m, int d) {
    load_matrices(a, shared_address(queries.at[(warp * MT + m) * 16 + lane % 16]) +
                         queries.mixed(lane % 8, d * 2 + lane / 16));
  };
  uint32 kept[KEEP ? MT : 1][KEEP ? D / 16 : 1][4];
  if constexpr (KEEP) {
    copy_wait<0>();
    __syncthreads();
#pragma unroll
    for (int m = 0; m < MT; ++m)
#pragma unroll
      for (int d = 0; d < D / 16; ++d) load_queries(kept[m][d], m, d);
  }

  const int64 last = CAUSAL && first + ROWS < shape.keys ? first + ROWS : shape.keys;
  const int64 begin = first + warp * 16 * MT;  // of this warp's queries
  float sums[MT][D / 8][4] = {};
  // Of the rows that this thread has parts of.
  float most[MT][2], total[MT][2];
#pragma unroll
  for (int m = 0; m < MT; ++m) most[m][0] = most[m][1] = lowest<float>(), total[m][0] = total[m][1] = 0;
  for (int64 start = 0; start < last; start += KEYS) {
    values.load(value, shape.value_strides[2], start, shape.keys, shape.features);
    copy_commit();
    copy_wait<1>();
    __syncthreads();
    // A warp whose queries see none of these keys only helps to load.
    const bool busy = !CAUSAL || start < begin + 16 * MT;
    float scores[MT][KEYS / 8][4] = {};
    if (busy) {
#pragma unroll
      for (int d = 0; d < D / 16; ++d) {
        uint32 a[MT][4];
#pragma unroll
        for (int m = 0; m < MT; ++m) {
          if constexpr (KEEP)
#pragma unroll
            for (int k = 0; k < 4; ++k) a[m][k] = kept[m][d][k];
          else load_queries(a[m], m, d);
        }
#pragma unroll
        for (int n = 0; n < KEYS / 16; ++n) {
          uint32 b[4];
          load_matrices(b, key_row + key_column(d) + n * 16 * D * 2);
#pragma unroll
          for (int m = 0; m < MT; ++m) {
            multiply(scores[m][2 * n], a[m], b[0], b[1], T());
            multiply(scores[m][2 * n + 1], a[m], b[2], b[3], T());
          }
        }
      }
    }
    __syncthreads();
    if (start + KEYS < last) keys.load(key, shape.key_strides[2], start + KEYS, shape.keys, shape.features);
    copy_commit();

    // Only tiles at an edge need their scores looked at one by one.
    const bool edge = MASKED || start + KEYS > shape.keys || (CAUSAL && start + KEYS > begin);
    Visible<CAUSAL, MASKED, M> visible = {mask, 0, 0, 0, (int)(shape.keys - start), (int)(begin - start)};
    if constexpr (MASKED) {
      visible.mask += batch * layout.strides[0] + head * layout.strides[1] + begin * layout.strides[2] +
                      start * layout.strides[3];
      visible.query_stride = layout.strides[2], visible.key_stride = layout.strides[3];
      visible.queries = (int)(shape.queries - begin);
    }
#pragma unroll
    for (int m = 0; m < MT; ++m) {
      float top[2] = {most[m][0], most[m][1]}, shift[2];
#pragma unroll
      for (int n = 0; n < KEYS / 8; ++n)
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          float &s = scores[m][n][k];
          s *= shape.scale;
          if (edge)
            s = visible(s, m * 16 + lane / 4 + k / 2 * 8, n * 8 + lane % 4 * 2 + k % 2);
          top[k / 2] = Greatest::join(top[k / 2], s);
        }
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        top[r] = Greatest::join(top[r], __shfl_xor_sync(0xffffffff, top[r], 1));
        top[r] = Greatest::join(top[r], __shfl_xor_sync(0xffffffff, top[r], 2));
        shift[r] = top[r] == lowest<float>() ? 0.0f : top[r];
        const float fade = power_of_two(most[m][r] - shift[r]);
        most[m][r] = top[r];
        total[m][r] *= fade;
#pragma unroll
        for (int d = 0; d < D / 8; ++d) sums[m][d][2 * r] *= fade, sums[m][d][2 * r + 1] *= fade;
      }
#pragma unroll
      for (int n = 0; n < KEYS / 8; ++n)
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          scores[m][n][k] = power_of_two(scores[m][n][k] - shift[k / 2]);
          total[m][k / 2] += scores[m][n][k];
        }
    }
    copy_wait<1>();
    __syncthreads();
    if (busy) {
#pragma unroll
      for (int n = 0; n < KEYS / 16; ++n) {
        uint32 p[MT][4];
#pragma unroll
        for (int m = 0; m < MT; ++m)
#pragma unroll
          for (int k = 0; k < 4; ++k) {
            const float(&pair)[4] = scores[m][2 * n + k / 2];
            p[m][k] = packed(pair[k % 2 * 2], pair[k % 2 * 2 + 1], T());
          }
#pragma unroll
        for (int d = 0; d < D / 16; ++d) {
          uint32 b[4];
          load_transposed(b, value_row + value_column(d) + n * 16 * D * 2);
#pragma unroll
          for (int m = 0; m < MT; ++m) {
            multiply(sums[m][2 * d], p[m], b[0], b[1], T());
            multiply(sums[m][2 * d + 1], p[m], b[2], b[3], T());
          }
        }
      }
    }
    __syncthreads();
  }
  copy_wait<0>();

  out += blockIdx.y * shape.queries * shape.features;
#pragma unroll
  for (int m = 0; m < MT; ++m)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float sum = total[m][r];
      sum += __shfl_xor_sync(0xffffffff, sum, 1);
      sum += __shfl_xor_sync(0xffffffff, sum, 2);
      const int64 at = begin + m * 16 + lane / 4 + r * 8;
      if (at >= shape.queries) continue;
      const float factor = sum == 0.0f ? 0.0f : 1.0f / sum;
      if (logs && lane % 4 == 0)
        logs[blockIdx.y * shape.queries + at] =
            sum == 0.0f ? highest<float>() : (most[m][r] + log2f(sum)) * 0.6931471805599453f;
#pragma unroll
      for (int d = 0; d < D / 8; ++d) {
        const int column = d * 8 + lane % 4 * 2;
        if (column < shape.features)
          *(uint32 *)(out + at * shape.features + column) =
              packed(sums[m][d][2 * r] * factor, sums[m][d][2 * r + 1] * factor, T());
      }
    }
}
