// SPDX-License-Identifier: Apache-2.0
// Matrix products as work: checked here, computed by NumPy on the executor thread.
#pragma once
#include "flambeau/driver/gemm_options.hpp"
#include "flambeau/driver/virtual/checks/ranges.hpp"
#include "flambeau/driver/virtual/memory/transfer.hpp"
#include "flambeau/runtime/scalar_type.hpp"

namespace flambeau::vgpu {

// Computes C; writes a sentence into `message` if it fails. Takes the GIL itself.
using GemmFunction = CUresult (*)(const GemmArgs *args, char *message, std::size_t length);

inline GemmFunction &gemm_function() {
  static GemmFunction function = nullptr;
  return function;
}

inline bool gemm_takes(int dtype) {
  switch (dtype) {
    case Float16: case BFloat16: case Float32: case Float64: case Complex64: case Complex128:
      return true;
    default: return false;
  }
}

inline CUresult check_gemm(const GemmArgs &g) {
  if (g.m < 0 || g.n < 0 || g.k < 0 || g.batch < 0) return CUDA_ERROR_INVALID_VALUE;
  const std::int64_t a_row = g.transpose_a ? g.m : g.k, b_row = g.transpose_b ? g.k : g.n;
  if (g.lda < std::max<std::int64_t>(1, a_row) || g.ldb < std::max<std::int64_t>(1, b_row) ||
      g.ldc < std::max<std::int64_t>(1, g.n)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (g.bias && (g.dtype == Complex64 || g.dtype == Complex128)) return CUDA_ERROR_NOT_SUPPORTED;
  return gemm_takes(g.dtype) ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

class GemmTask final : public Task {
 public:
  explicit GemmTask(const GemmArgs &args) : args_(args) {}
  bool compiled() const override { return false; }
  bool brief() const override { return false; }
  Engine engine() const override { return Engine::Compute; }
  void describe(WorkDescription &work) const override { work.name = "gemm"; }

  void run(Machine &machine, Context &context, Nanoseconds, Report &report) override {
    if (!allowed(machine, report)) return;
    if (ticket && checking()) check();
    char message[512] = "";
    report.status = gemm_function()(&args_, message, sizeof message);
    if (report.status != CUDA_SUCCESS) report.fault = std::string("A matrix product failed: ") + message;
    report.duration = kernel_time_on(context.device->model, multiprocessors, duration(context.device->model));
  }

 private:
  // Bytes that one matrix and its batch span.
  static std::uint64_t span(std::int64_t rows, std::int64_t columns, std::int64_t ld,
                            std::int64_t stride, std::int64_t batch, int item) {
    if (rows == 0 || columns == 0 || batch == 0) return 0;
    return static_cast<std::uint64_t>((batch - 1) * stride + (rows - 1) * ld + columns) *
           static_cast<std::uint64_t>(item);
  }

  // Row by row: what lies between the rows is not touched.
  void check() const {
    const GemmArgs &g = args_;
    RangeChecks checks(ticket, "a matrix product");
    const auto each_row = [&](CUdeviceptr at, std::int64_t rows, std::int64_t columns, std::int64_t ld,
                              std::int64_t stride, bool writes) {
      const auto item = static_cast<std::uint64_t>(item_bytes[g.dtype]);
      for (std::int64_t batch = 0; batch < g.batch; ++batch) {
        for (std::int64_t row = 0; row < rows; ++row) {
          const std::uint64_t begin = at + static_cast<std::uint64_t>(batch * stride + row * ld) * item;
          const std::uint64_t bytes = static_cast<std::uint64_t>(columns) * item;
          if (writes) checks.write(begin, bytes); else checks.read(begin, bytes);
        }
      }
    };
    if (g.k > 0) {
      each_row(g.a, g.transpose_a ? g.k : g.m, g.transpose_a ? g.m : g.k, g.lda, g.stride_a, false);
      each_row(g.b, g.transpose_b ? g.n : g.k, g.transpose_b ? g.k : g.n, g.ldb, g.stride_b, false);
    }
    if (g.bias) each_row(g.bias, 1, g.n, 0, 0, false);
    if (g.beta != 0) each_row(g.c, g.m, g.n, g.ldc, g.stride_c, false);
    each_row(g.c, g.m, g.n, g.ldc, g.stride_c, true);
  }

  bool allowed(Machine &machine, Report &report) {
    const GemmArgs &g = args_;
    const int item = item_bytes[g.dtype];
    const std::int64_t a_rows = g.transpose_a ? g.k : g.m, a_columns = g.transpose_a ? g.m : g.k;
    const std::int64_t b_rows = g.transpose_b ? g.n : g.k, b_columns = g.transpose_b ? g.k : g.n;
    const struct { CUdeviceptr at; std::uint64_t bytes; const char *what; } operands[] = {
        {g.a, span(a_rows, a_columns, g.lda, g.stride_a, g.batch, item), "A matrix product's read of A"},
        {g.b, span(b_rows, b_columns, g.ldb, g.stride_b, g.batch, item), "A matrix product's read of B"},
        {g.c, span(g.m, g.n, g.ldc, g.stride_c, g.batch, item), "A matrix product's write of C"},
        {g.bias, g.bias ? span(1, g.n, 0, 0, 1, item) : 0, "A matrix product's read of its bias"}};
    std::lock_guard<std::mutex> guard(machine.mutex);
    for (const auto &operand : operands) {
      if (operand.bytes == 0 || holds(place_of(machine, operand.at), operand.at, operand.bytes)) continue;
      report.status = CUDA_ERROR_ILLEGAL_ADDRESS;
      report.fault = describe_bad_range(machine, operand.what, operand.at, operand.bytes);
      return false;
    }
    return true;
  }

  Nanoseconds duration(const Model &m) const {
    const GemmArgs &g = args_;
    const double batch = static_cast<double>(g.batch);
    const double mn = static_cast<double>(g.m) * static_cast<double>(g.n);
    const double k = static_cast<double>(g.k);
    const double elements = batch * (mn + k * static_cast<double>(g.m + g.n));
    double operations = 2 * batch * mn * k;
    const bool half = g.dtype == Float16 || g.dtype == BFloat16;
    if (half) operations *= m.arithmetic_rate / m.matrix_rate;
    if (g.dtype == Float32 && gemm_kind(g.compute) == GEMM_TF32) operations *= 2 * m.arithmetic_rate / m.matrix_rate;
    const double relative = algorithm_cost(m, gemm_algorithm(g.compute)) / algorithm_cost(m, 0);
    const Nanoseconds usual = kernel_time(m, elements * item_bytes[g.dtype], operations);
    return KERNEL_OVERHEAD + static_cast<Nanoseconds>(static_cast<double>(usual - KERNEL_OVERHEAD) * relative);
  }

  // Multiplications that the busiest multiprocessor makes, and what adding up parts of k costs. The
  // algorithms' numbers are those of virtual/libraries.py; the default has tiles of 128 x 128.
  double algorithm_cost(const Model &m, int number) const {
    static constexpr double tiles[] = {64, 128, 256};
    const int choice = number < 2 ? 1 : number - 2;
    const double tile = tiles[choice % 3], parts = static_cast<double>(1 << choice / 3);
    const GemmArgs &g = args_;
    const auto up = [](double total, double piece) { return std::ceil(total / piece); };
    const double blocks = up(static_cast<double>(g.m), tile) * up(static_cast<double>(g.n), tile) *
                          static_cast<double>(g.batch) * parts;
    const double waves = up(blocks, m.multiprocessors);
    // Small tiles load each operand more often.
    const double work = waves * tile * tile * up(static_cast<double>(g.k), parts) * (1 + 64 / tile);
    const double added = parts > 1 ? parts * static_cast<double>(g.m) * static_cast<double>(g.n) *
                                         static_cast<double>(g.batch) * 16 / m.multiprocessors
                                   : 0;
    return work + added + 1;
  }

  GemmArgs args_;
};

}  // namespace flambeau::vgpu
