// SPDX-License-Identifier: Apache-2.0
// The gradients of attention in one kernel: scores are computed anew, tile by tile. One kernel keeps
// 64 queries and walks over keys, for the gradient of the queries; its other form (BY_KEY) keeps 64
// keys and walks over queries, for those of keys and values. Sums are always in the same order.
#pragma once
#include "attention_fused.cuh"

// The rows that a block keeps, X, and those it walks over, Y, are queries with gradients of the
// result, and keys with values; BY_KEY says which way round.
template <bool CAUSAL, bool MASKED, bool BY_KEY, int D, class T, class M>
__device__ inline void attention_backward(
    T *out, T *out_values, const T *query, const T *key, const T *value, const T *grad, const float *logs,
    const float *deltas, const M *mask, const AttentionShape &shape, const MaskLayout &layout) {
  enum { ROWS = 64, COLUMNS = BY_KEY || D > 64 ? 32 : 64 };
  __shared__ __align__(16) Tile<T, ROWS, D> x1, x2;
  __shared__ __align__(16) Tile<T, COLUMNS, D> y1, y2;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int key_heads = shape.heads / shape.group, heads = BY_KEY ? key_heads : shape.heads;
  const int64 first = blockIdx.x * (int64)ROWS, batch = blockIdx.y / heads, own = blockIdx.y % heads;
  const int64 key_head = BY_KEY ? own : own / shape.group;
  const int64 x_count = BY_KEY ? shape.keys : shape.queries, y_count = BY_KEY ? shape.queries : shape.keys;
  key += batch * shape.key_strides[0] + key_head * shape.key_strides[1];
  value += batch * shape.value_strides[0] + key_head * shape.value_strides[1];
  const int64 begin = first + warp * 16;

  const uint32 x1_row = shared_address(x1.at[warp * 16 + lane % 16]);
  const uint32 x2_row = shared_address(x2.at[warp * 16 + lane % 16]);
  const uint32 y1_row = shared_address(y1.at[lane % 8 + lane / 16 * 8]);
  const uint32 y2_row = shared_address(y2.at[lane % 8 + lane / 16 * 8]);
  const uint32 y1_across = shared_address(y1.at[lane % 16]), y2_across = shared_address(y2.at[lane % 16]);
  float sums[D / 8][4] = {}, value_sums[BY_KEY ? D / 8 : 1][4] = {};

  // All query heads that share these keys; just one where queries are kept.
  for (int64 head = BY_KEY ? own * shape.group : own, end = BY_KEY ? head + shape.group : head + 1; head < end; ++head) {
    const T *queries = query + batch * shape.query_strides[0] + head * shape.query_strides[1];
    const T *grads = grad + batch * shape.grad_strides[0] + head * shape.grad_strides[1];
    const int64 line = (batch * shape.heads + head) * shape.queries;
    const T *x_from[2] = {BY_KEY ? key : queries, BY_KEY ? value : grads};
    const T *y_from[2] = {BY_KEY ? queries : key, BY_KEY ? grads : value};
    const int64 x_step[2] = {BY_KEY ? shape.key_strides[2] : shape.query_strides[2],
                             BY_KEY ? shape.value_strides[2] : shape.grad_strides[2]};
    const int64 y_step[2] = {BY_KEY ? shape.query_strides[2] : shape.key_strides[2],
                             BY_KEY ? shape.grad_strides[2] : shape.value_strides[2]};
    if (!BY_KEY || head == own * shape.group) {
      x1.load(x_from[0], x_step[0], first, x_count, shape.features);
      x2.load(x_from[1], x_step[1], first, x_count, shape.features);
    }
    float row_log[2] = {0, 0}, row_delta[2] = {0, 0};
    if constexpr (!BY_KEY)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int64 at = begin + lane / 4 + r * 8;
        if (at < x_count) row_log[r] = logs[line + at] * 1.4426950408889634f, row_delta[r] = deltas[line + at];
      }
    const int64 from = CAUSAL && BY_KEY ? first / COLUMNS * COLUMNS : 0;
    const int64 to = CAUSAL && !BY_KEY && first + ROWS < y_count ? first + ROWS : y_count;
    for (int64 start = from; start < to; start += COLUMNS) {
      y1.load(y_from[0], y_step[0], start, y_count, shape.features);
      y2.load(y_from[1], y_step[1], start, y_count, shape.features);
      copy_commit();
      copy_wait<0>();
      __syncthreads();
      float scores[COLUMNS / 8][4] = {}, slopes[COLUMNS / 8][4] = {};
#pragma unroll
      for (int d = 0; d < D / 16; ++d) {
        uint32 a1[4], a2[4];
        const uint32 a_column = x1.mixed(lane % 8, d * 2 + lane / 16);
        const uint32 b_column = y1.mixed(lane % 8, d * 2 + lane / 8 % 2);
        load_matrices(a1, x1_row + a_column);
        load_matrices(a2, x2_row + a_column);
#pragma unroll
        for (int n = 0; n < COLUMNS / 16; ++n) {
          uint32 b[4];
          load_matrices(b, y1_row + b_column + n * 16 * D * 2);
          multiply(scores[2 * n], a1, b[0], b[1], T());
          multiply(scores[2 * n + 1], a1, b[2], b[3], T());
          load_matrices(b, y2_row + b_column + n * 16 * D * 2);
          multiply(slopes[2 * n], a2, b[0], b[1], T());
          multiply(slopes[2 * n + 1], a2, b[2], b[3], T());
        }
      }
      const int64 first_query = BY_KEY ? start : begin, first_key = BY_KEY ? begin : start;
      Visible<CAUSAL, MASKED, M> visible = {
          mask, 0, 0, (int)(shape.queries - first_query), (int)(shape.keys - first_key), (int)(first_query - first_key)};
      if constexpr (MASKED) {
        visible.mask += batch * layout.strides[0] + head * layout.strides[1] + first_query * layout.strides[2] +
                        first_key * layout.strides[3];
        visible.query_stride = layout.strides[2], visible.key_stride = layout.strides[3];
      }
      // Scores become weights, and slopes of weights those of scores.
#pragma unroll
      for (int n = 0; n < COLUMNS / 8; ++n)
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          const int row = lane / 4 + k / 2 * 8, column = n * 8 + lane % 4 * 2 + k % 2;
          const int q = BY_KEY ? column : row, c = BY_KEY ? row : column;
          const bool present = q < visible.queries;
          float log = row_log[k / 2], delta = row_delta[k / 2];
          if (BY_KEY && present) {
            log = logs[line + start + column] * 1.4426950408889634f;
            delta = deltas[line + start + column];
          }
          const float score = visible(scores[n][k] * shape.scale, q, c);
          const float weight = present ? power_of_two(score - log) : 0.0f;
          scores[n][k] = weight;
          slopes[n][k] = weight * (slopes[n][k] - delta);
        }
#pragma unroll
      for (int n = 0; n < COLUMNS / 16; ++n) {
        uint32 p[4], s[4];
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          const int block = 2 * n + k / 2, pair = k % 2 * 2;
          p[k] = packed(scores[block][pair], scores[block][pair + 1], T());
          s[k] = packed(slopes[block][pair], slopes[block][pair + 1], T());
        }
#pragma unroll
        for (int d = 0; d < D / 16; ++d) {
          uint32 b[4];
          const uint32 column = y1.mixed(lane % 8, d * 2 + lane / 16) + n * 16 * D * 2;
          load_transposed(b, y1_across + column);
          multiply(sums[2 * d], s, b[0], b[1], T());
          multiply(sums[2 * d + 1], s, b[2], b[3], T());
          if constexpr (BY_KEY) {
            load_transposed(b, y2_across + column);
            multiply(value_sums[2 * d], p, b[0], b[1], T());
            multiply(value_sums[2 * d + 1], p, b[2], b[3], T());
          }
        }
      }
      __syncthreads();
    }
  }

  const float scale = shape.scale * 0.6931471805599453f;
  const int64 block = blockIdx.y * x_count * shape.features;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int64 at = begin + lane / 4 + r * 8;
    if (at >= x_count) continue;
#pragma unroll
    for (int d = 0; d < D / 8; ++d) {
      const int column = d * 8 + lane % 4 * 2;
      if (column >= shape.features) continue;
      const int64 place = block + at * shape.features + column;
      *(uint32 *)(out + place) = packed(sums[d][2 * r] * scale, sums[d][2 * r + 1] * scale, T());
      if constexpr (BY_KEY)
        *(uint32 *)(out_values + place) = packed(value_sums[d][2 * r], value_sums[d][2 * r + 1], T());
    }
  }
}
