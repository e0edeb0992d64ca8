// SPDX-License-Identifier: Apache-2.0
// Cross entropy of rows of logits with class numbers, without the softmax in memory, and the
// negative log likelihood of given log probabilities.
#pragma once
#include "softmax.cuh"

extern "C" __device__ void __assertfail(
    const char *condition, const char *file, unsigned line, const char *function, size_t char_size);

// A class number, or -1 for one that is to be ignored.
template <class Index> __device__ inline int64 class_of(Index target, int64 ignored, int64 classes) {
  if (target == ignored) return -1;
  if (target < 0 || target >= classes)
    __assertfail("t >= 0 && t < n_classes: target out of range", "loss.cuh", __LINE__, "class_of", 1);
  return target;
}

// losses[row] is weighted already; weights[row] is 0 for an ignored row; logs[row] is what the
// backward pass needs to have the softmax again.
template <int V, int PER, int THREADS, class T, class Index, class A>
__device__ inline void cross_entropy_rows(
    A *losses, A *weights, A *logs, const T *in, const Index *targets, const A *weight, int64 rows,
    int64 n, int64 ignored, double smoothing) {
  const int64 row = group_index<THREADS>();
  if (row >= rows) return;
  in += row * n;
  const int64 target = class_of((int64)targets[row], ignored, n);
  const Walk<V, PER, THREADS> walk(in, n, sizeof(T));
  Row<T, A, V, PER> x(in, walk);
  Exponentials<A> sum;
  A values = A(0), weighed = A(0);  // of all classes, for smoothing
  walk([&](auto width, int p, int64 i) {
    x.again(width, p, i);
    sum.template add<width.value>(x.at[p]);
    if (smoothing != 0) {
#pragma unroll
      for (int j = 0; j < width.value; ++j) {
        const A share = weight ? weight[i + j] : A(1);
        values += share * x.at[p][j];
        weighed += share;
      }
    }
  });
  sum.template join<THREADS>();
  const A log_sum = sum.most + log(sum.total);
  A smooth = A(0);
  if (smoothing != 0) {
    values = group_join<Added, THREADS>(values, 2);
    weighed = group_join<Added, THREADS>(weighed, 3);
    smooth = (weighed * log_sum - values) * (A)(smoothing / (double)n);
  }
  if (walk.lane != 0) return;
  const A share = target < 0 ? A(0) : weight ? weight[target] : A(1);
  const A sharp = target < 0 ? A(0) : share * (log_sum - convert<A>(in[target]));
  losses[row] = target < 0 ? A(0) : sharp * (A)(1 - smoothing) + smooth;
  weights[row] = share;
  logs[row] = log_sum;
}

// `grad` holds one number for all rows (step 0) or one for each (step 1); `total`, if given, is what
// the mean was taken over; `weight_total` is the sum of the class weights.
template <int V, int PER, int THREADS, class T, class Index, class A>
__device__ inline void cross_entropy_rows_backward(
    T *out, const T *in, const Index *targets, const A *logs, const A *weight, const A *weight_total,
    const A *grad, const A *total, int64 step, int64 rows, int64 n, int64 ignored, double smoothing) {
  const int64 row = group_index<THREADS>();
  if (row >= rows) return;
  in += row * n, out += row * n;
  const int64 target = targets[row] == ignored ? -1 : (int64)targets[row];
  const Walk<V, PER, THREADS> walk(in, n, sizeof(T));
  Row<T, A, V, PER> x(in, walk);
  const A factor = target < 0 ? A(0) : total ? grad[row * step] / *total : grad[row * step];
  const A share = target < 0 ? A(0) : weight ? weight[target] : A(1);
  const A sharp = (A)(1 - smoothing) * share, smooth = (A)(smoothing / (double)n);
  const A all = smooth * (weight_total ? *weight_total : (A)n) + sharp, log_sum = logs[row];
  walk([&](auto width, int p, int64 i) {
    x.again(width, p, i);
    Vector<T, width.value> pack;
#pragma unroll
    for (int j = 0; j < width.value; ++j) {
      A slope = all * exp(x.at[p][j] - log_sum);
      if (smoothing != 0) slope -= smooth * (weight ? weight[i + j] : A(1));
      if (i + j == target) slope -= sharp;
      // An ignored row may hold anything; its gradient is 0.
      pack.at[j] = convert<T>(target < 0 ? A(0) : slope * factor);
    }
    *(Vector<T, width.value> *)(out + i) = pack;
  });
}

// Log probabilities of shape (outer, classes, inner), targets of (outer, inner).
template <class T, class Index, class A>
__device__ inline void nll_forward(
    A *losses, A *weights, const T *in, const Index *targets, const A *weight, int64 count, int64 classes,
    int64 inner, int64 ignored) {
  const int64 i = blockIdx.x * (int64)blockDim.x + threadIdx.x;
  if (i >= count) return;
  const int64 target = class_of((int64)targets[i], ignored, classes);
  const A share = target < 0 ? A(0) : weight ? weight[target] : A(1);
  losses[i] = target < 0 ? A(0) : -share * convert<A>(in[(i / inner * classes + target) * inner + i % inner]);
  weights[i] = share;
}
// `out` is zero already.
template <class T, class Index, class A>
__device__ inline void nll_backward(
    T *out, const Index *targets, const A *weights, const A *grad, const A *total, int64 step, int64 count,
    int64 classes, int64 inner, int64 ignored) {
  const int64 i = blockIdx.x * (int64)blockDim.x + threadIdx.x;
  if (i >= count || targets[i] == ignored) return;
  const A slope = -weights[i] * grad[i * step] / (total ? *total : A(1));
  out[(i / inner * classes + targets[i]) * inner + i % inner] = convert<T>(slope);
}
