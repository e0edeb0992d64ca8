// SPDX-License-Identifier: Apache-2.0
// Normalisation of rows by mean and variance (layer norm), or by the mean square (RMS norm, where
// `mean` and `bias` stay unused), with weights per column.
#pragma once
#include "row.cuh"

template <bool RMS, int V, int PER, int THREADS, class T, class W, class A>
__device__ inline void normalize_rows(
    T *out, A *mean_out, A *scale_out, const T *in, const W *weight, const W *bias, int64 rows, int64 n,
    double epsilon) {
  const int64 row = group_index<THREADS>();
  if (row >= rows) return;
  in += row * n, out += row * n;
  const Walk<V, PER, THREADS> walk(in, n, sizeof(T));
  Row<T, A, V, PER> x(in, walk);
  A mean = A(0), squares = A(0);
  if constexpr (!RMS) {
    walk([&](auto width, int p, int64 i) {
      x.again(width, p, i);
#pragma unroll
      for (int j = 0; j < width.value; ++j) mean += x.at[p][j];
    });
    mean = group_join<Added, THREADS>(mean, 0) / (A)n;
  }
  walk([&](auto width, int p, int64 i) {
    x.again(width, p, i);
#pragma unroll
    for (int j = 0; j < width.value; ++j) {
      const A away = x.at[p][j] - mean;
      squares += away * away;
    }
  });
  squares = group_join<Added, THREADS>(squares, 1);
  const A scale = A(1) / sqrt(squares / (A)n + (A)epsilon);
  if (walk.lane == 0) {
    if (!RMS && mean_out) mean_out[row] = mean;
    if (scale_out) scale_out[row] = scale;
  }
  walk([&](auto width, int p, int64 i) {
    enum { N = width.value };
    x.again(width, p, i);
    A value[N];
#pragma unroll
    for (int j = 0; j < N; ++j) value[j] = (x.at[p][j] - mean) * scale;
    if (weight) {
      const Vector<W, N> pack = pack_at<N>(weight, i);
#pragma unroll
      for (int j = 0; j < N; ++j) value[j] *= convert<A>(pack.at[j]);
    }
    if (!RMS && bias) {
      const Vector<W, N> pack = pack_at<N>(bias, i);
#pragma unroll
      for (int j = 0; j < N; ++j) value[j] += convert<A>(pack.at[j]);
    }
    Vector<T, N> pack;
#pragma unroll
    for (int j = 0; j < N; ++j) pack.at[j] = convert<T>(value[j]);
    *(Vector<T, N> *)(out + i) = pack;
  });
}

// The gradient of the input. Each group walks over many rows and, where rows are held, adds up its
// share of the gradients of weight and bias on the way: one line of `weight_parts` and `bias_parts`.
template <bool RMS, int V, int PER, int THREADS, class T, class W, class A>
__device__ inline void normalize_rows_backward(
    T *out, A *weight_parts, A *bias_parts, const T *grad, const T *in, const W *weight,
    const A *means, const A *scales, int64 rows, int64 n) {
  enum { HELD = PER > 0 ? PER : 1 };
  A weight_sum[HELD][V] = {}, bias_sum[HELD][V] = {};
  int slot = 0;
  for (int64 row = group_index<THREADS>(); row < rows; row += group_count<THREADS>(), slot ^= 2) {
    const T *g_row = grad + row * n, *x_row = in + row * n;
    const Walk<V, PER, THREADS> walk(g_row, n, sizeof(T));
    Row<T, A, V, PER> g(g_row, walk), x(x_row, walk);
    const A mean = RMS ? A(0) : means[row], scale = scales[row];
    A slopes = A(0), along = A(0);
    walk([&](auto width, int p, int64 i) {
      enum { N = width.value };
      g.again(width, p, i), x.again(width, p, i);
      Vector<W, N> pack;
      if (weight) pack = pack_at<N>(weight, i);
#pragma unroll
      for (int j = 0; j < N; ++j) {
        const A normal = (x.at[p][j] - mean) * scale, slope = g.at[p][j];
        if constexpr (PER > 0) {
          weight_sum[p][j] += slope * normal;
          bias_sum[p][j] += slope;
          x.at[p][j] = normal;
        }
        const A weighted = weight ? slope * convert<A>(pack.at[j]) : slope;
        if constexpr (PER > 0) g.at[p][j] = weighted;
        slopes += weighted;
        along += weighted * normal;
      }
    });
    if constexpr (!RMS) slopes = group_join<Added, THREADS>(slopes, slot) / (A)n;
    along = group_join<Added, THREADS>(along, slot + 1) / (A)n;
    if (!out) continue;
    walk([&](auto width, int p, int64 i) {
      enum { N = width.value };
      g.again(width, p, i), x.again(width, p, i);
      Vector<W, N> weights;
      if (PER == 0 && weight) weights = pack_at<N>(weight, i);
      Vector<T, N> pack;
#pragma unroll
      for (int j = 0; j < N; ++j) {
        A normal = x.at[p][j], weighted = g.at[p][j];
        if constexpr (PER == 0) {
          normal = (normal - mean) * scale;
          if (weight) weighted *= convert<A>(weights.at[j]);
        }
        pack.at[j] = convert<T>(scale * (weighted - (RMS ? A(0) : slopes) - normal * along));
      }
      *(Vector<T, N> *)(out + row * n + i) = pack;
    });
  }
  if constexpr (PER > 0) {
    const Walk<V, PER, THREADS> walk(grad, n, sizeof(T));
    const int64 line = group_index<THREADS>() * n;
    walk([&](auto, int p, int64 i) {
#pragma unroll
      for (int j = 0; j < V; ++j) {
        if (weight_parts) weight_parts[line + i + j] = weight_sum[p][j];
        if (bias_parts) bias_parts[line + i + j] = bias_sum[p][j];
      }
    });
  }
}

// The gradients of weight and bias where rows are too long to be held: a thread for each column
// adds up a slice of the rows.
template <bool RMS, class T, class A>
__device__ inline void normalize_columns_backward(
    A *weight_parts, A *bias_parts, const T *grad, const T *in, const A *means, const A *scales,
    int64 rows, int64 n) {
  const int64 column = blockIdx.x * (int64)blockDim.x + threadIdx.x;
  if (column >= n) return;
  A weight_sum = A(0), bias_sum = A(0);
  for (int64 row = blockIdx.y; row < rows; row += gridDim.y) {
    const A slope = convert<A>(grad[row * n + column]);
    const A value = convert<A>(in[row * n + column]);
    weight_sum += slope * (value - (RMS ? A(0) : means[row])) * scales[row];
    bias_sum += slope;
  }
  if (weight_parts) weight_parts[blockIdx.y * n + column] = weight_sum;
  if (bias_parts) bias_parts[blockIdx.y * n + column] = bias_sum;
}
