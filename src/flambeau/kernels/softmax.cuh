// SPDX-License-Identifier: Apache-2.0
// Softmax and its logarithm, forward and backward: along contiguous rows in one pass over memory
// where a row fits in registers, else along columns.
#pragma once
#include "row.cuh"

// The greatest value and the sum of exponentials beneath it, of values that come a few at a time.
template <class A> struct Exponentials {
  A most = lowest<A>(), total = A(0);
  template <int W> __device__ inline void add(const A *values) {
    A top = values[0];
#pragma unroll
    for (int j = 1; j < W; ++j) top = Greatest::join(top, values[j]);
    if (top > most) {
      total *= exp(most - top);
      most = top;
    }
#pragma unroll
    for (int j = 0; j < W; ++j)
      if (values[j] != lowest<A>()) total += exp(values[j] - most);
  }
  template <int THREADS> __device__ inline void join() {
    const A top = group_join<Greatest, THREADS>(most, 0);
    // Nothing but -inf gives NaN, as 0/0 would.
    total = group_join<Added, THREADS>(top == lowest<A>() ? top - top : total * exp(most - top), 1);
    most = top;
  }
};

template <bool LOG, int V, int PER, int THREADS, class In, class Out>
__device__ inline void softmax_rows(Out *out, const In *in, int64 rows, int64 n) {
  typedef typename arithmetic<Out>::type A;
  const int64 row = group_index<THREADS>();
  if (row >= rows) return;
  in += row * n, out += row * n;
  const Walk<V, PER, THREADS> walk(in, n, sizeof(In));
  Row<In, A, V, PER> x(in, walk);
  A most = lowest<A>(), total = A(0);
  if constexpr (PER > 0) {
    walk([&](auto width, int p, int64) {
#pragma unroll
      for (int j = 0; j < width.value; ++j) most = Greatest::join(most, x.at[p][j]);
    });
    most = group_join<Greatest, THREADS>(most, 0);
    walk([&](auto width, int p, int64) {
#pragma unroll
      for (int j = 0; j < width.value; ++j) {
        const A power = exp(x.at[p][j] - most);
        total += power;
        if constexpr (!LOG) x.at[p][j] = power;
      }
    });
    total = group_join<Added, THREADS>(total, 1);
  } else {
    Exponentials<A> sum;
    walk([&](auto width, int p, int64 i) {
      x.again(width, p, i);
      sum.template add<width.value>(x.at[p]);
    });
    sum.template join<THREADS>();
    most = sum.most, total = sum.total;
  }
  const A shift = most + log(total), scale = A(1) / total;
  walk([&](auto width, int p, int64 i) {
    x.again(width, p, i);
    Vector<Out, width.value> pack;
#pragma unroll
    for (int j = 0; j < width.value; ++j) {
      const A value = x.at[p][j];
      if constexpr (LOG) pack.at[j] = convert<Out>(value - shift);
      else pack.at[j] = convert<Out>((PER > 0 ? value : exp(value - most)) * scale);
    }
    *(Vector<Out, width.value> *)(out + i) = pack;
  });
}

template <bool LOG, int V, int PER, int THREADS, class T, class In>
__device__ inline void softmax_rows_backward(
    In *out, const T *grad, const T *result, int64 rows, int64 n) {
  typedef typename arithmetic<T>::type A;
  const int64 row = group_index<THREADS>();
  if (row >= rows) return;
  grad += row * n, result += row * n, out += row * n;
  const Walk<V, PER, THREADS> walk(grad, n, sizeof(T));
  Row<T, A, V, PER> g(grad, walk), y(result, walk);
  A total = A(0);
  walk([&](auto width, int p, int64 i) {
    g.again(width, p, i);
    if constexpr (!LOG) y.again(width, p, i);
#pragma unroll
    for (int j = 0; j < width.value; ++j) total += LOG ? g.at[p][j] : g.at[p][j] * y.at[p][j];
  });
  total = group_join<Added, THREADS>(total, 0);
  walk([&](auto width, int p, int64 i) {
    g.again(width, p, i), y.again(width, p, i);
    Vector<In, width.value> pack;
#pragma unroll
    for (int j = 0; j < width.value; ++j) {
      const A slope = g.at[p][j], value = y.at[p][j];
      pack.at[j] = convert<In>(LOG ? slope - exp(value) * total : value * (slope - total));
    }
    *(Vector<In, width.value> *)(out + i) = pack;
  });
}

// One thread for each column of a (outer, n, inner) array: neighbours read neighbours.
template <bool LOG, class In, class Out>
__device__ inline void softmax_columns(Out *out, const In *in, int64 columns, int64 n, int64 inner) {
  typedef typename arithmetic<Out>::type A;
  const int64 column = blockIdx.x * (int64)blockDim.x + threadIdx.x;
  if (column >= columns) return;
  const int64 first = column / inner * n * inner + column % inner;
  in += first, out += first;
  Exponentials<A> sum;
  for (int64 k = 0; k < n; ++k) {
    const A value = convert<A>(in[k * inner]);
    sum.template add<1>(&value);
  }
  if (sum.most == lowest<A>()) sum.total = sum.most - sum.most;
  const A shift = sum.most + log(sum.total), scale = A(1) / sum.total;
  for (int64 k = 0; k < n; ++k) {
    const A value = convert<A>(in[k * inner]);
    out[k * inner] = convert<Out>(LOG ? value - shift : exp(value - sum.most) * scale);
  }
}

template <bool LOG, class T, class In>
__device__ inline void softmax_columns_backward(
    In *out, const T *grad, const T *result, int64 columns, int64 n, int64 inner) {
  typedef typename arithmetic<T>::type A;
  const int64 column = blockIdx.x * (int64)blockDim.x + threadIdx.x;
  if (column >= columns) return;
  const int64 first = column / inner * n * inner + column % inner;
  grad += first, result += first, out += first;
  A total = A(0);
  for (int64 k = 0; k < n * inner; k += inner) {
    const A slope = convert<A>(grad[k]);
    total += LOG ? slope : slope * convert<A>(result[k]);
  }
  for (int64 k = 0; k < n * inner; k += inner) {
    const A slope = convert<A>(grad[k]), value = convert<A>(result[k]);
    out[k] = convert<In>(LOG ? slope - exp(value) * total : value * (slope - total));
  }
}
