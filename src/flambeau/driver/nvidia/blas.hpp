// SPDX-License-Identifier: Apache-2.0
// Matrix products through cuBLASLt's C functions. What a product of one shape needs (descriptors,
// layouts, the algorithm that the library's heuristic picked) is made once and kept.
#pragma once
#include <cstring>
#include <mutex>
#include <unordered_map>

#include "flambeau/runtime/scalar_type.hpp"
#include "loader.hpp"

namespace flambeau::nvidia {

struct LtAlgorithm { std::uint64_t data[8]; };
struct LtHeuristic {
  LtAlgorithm algorithm;
  std::size_t workspace;
  int status;
  float waves;
  int reserved[4];
};

// The few functions of cuBLASLt that we use, found by name in the library that Python located.
struct CublasLt {
  int (*Create)(void **);
  int (*MatmulDescCreate)(void **, int compute, int scale);
  int (*MatmulDescSetAttribute)(void *, int, const void *, std::size_t);
  int (*MatrixLayoutCreate)(void **, int type, std::uint64_t rows, std::uint64_t cols,
                            std::int64_t leading);
  int (*MatrixLayoutSetAttribute)(void *, int, const void *, std::size_t);
  int (*MatmulPreferenceCreate)(void **);
  int (*MatmulPreferenceSetAttribute)(void *, int, const void *, std::size_t);
  int (*MatmulPreferenceDestroy)(void *);
  int (*MatmulAlgoGetHeuristic)(void *, void *, void *, void *, void *, void *, void *, int,
                                LtHeuristic *, int *);
  int (*Matmul)(void *, void *, const void *, const void *, void *, const void *, void *,
                const void *, const void *, void *, void *, void *, const LtAlgorithm *, void *,
                std::size_t, CUstream);
  bool ready = false;
  int last_status = 0;  // cuBLAS status of the last failure, for explain()
};

inline CublasLt &cublaslt() {
  static CublasLt *instance = new CublasLt();
  return *instance;
}

// Resolve the functions in a dlopen handle; the name of the first one missing, or null.
inline const char *resolve_cublaslt(void *handle) {
  CublasLt &lt = cublaslt();
#define FLAMBEAU_X(name)                                                    \
  *reinterpret_cast<void **>(&lt.name) = dlsym(handle, "cublasLt" #name);   \
  if (!lt.name) return "cublasLt" #name;
  FLAMBEAU_X(Create)
  FLAMBEAU_X(MatmulDescCreate)
  FLAMBEAU_X(MatmulDescSetAttribute)
  FLAMBEAU_X(MatrixLayoutCreate)
  FLAMBEAU_X(MatrixLayoutSetAttribute)
  FLAMBEAU_X(MatmulPreferenceCreate)
  FLAMBEAU_X(MatmulPreferenceSetAttribute)
  FLAMBEAU_X(MatmulPreferenceDestroy)
  FLAMBEAU_X(MatmulAlgoGetHeuristic)
  FLAMBEAU_X(Matmul)
#undef FLAMBEAU_X
  lt.ready = true;
  return nullptr;
}

// cuBLASLt's numbers.
enum : int {
  COMPUTE_32F = 68, COMPUTE_32F_FAST_TF32 = 77, COMPUTE_64F = 70,
  R_32F = 0, R_64F = 1, R_16F = 2, R_16BF = 14,
  DESC_TRANSA = 3, DESC_TRANSB = 4,
  LAYOUT_BATCH_COUNT = 5, LAYOUT_BATCH_STRIDE = 6,
  PREFERENCE_WORKSPACE = 1, PREFERENCE_ALIGN_A = 5, PREFERENCE_ALIGN_B = 6,
  PREFERENCE_ALIGN_C = 7, PREFERENCE_ALIGN_D = 8,
};

struct PlanKey {
  std::int64_t m, n, k, batch, lda, ldb, ldc, stride_a, stride_b, stride_c;
  std::int64_t workspace;
  int transpose_a, transpose_b, dtype, compute, device;
  int align_a, align_b, align_c;  // bytes, 16 .. 256
  bool operator==(const PlanKey &other) const { return !std::memcmp(this, &other, sizeof other); }
};

struct PlanKeyHash {
  std::size_t operator()(const PlanKey &key) const {
    std::uint64_t hash = 1469598103934665603ull;
    const auto *words = reinterpret_cast<const std::uint32_t *>(&key);
    for (std::size_t i = 0; i < sizeof key / 4; ++i) hash = (hash ^ words[i]) * 1099511628211ull;
    return hash;
  }
};

struct Plan {
  void *desc = nullptr, *a = nullptr, *b = nullptr, *c = nullptr;
  LtAlgorithm algorithm;
  std::size_t workspace = 0;
  bool is_double = false;
};

inline CUresult blas_failure(int status) {
  cublaslt().last_status = status;
  switch (status) {
    case 3: return CUDA_ERROR_OUT_OF_MEMORY;
    case 7: return CUDA_ERROR_INVALID_VALUE;
    case 15: return CUDA_ERROR_NOT_SUPPORTED;
    default: return CUDA_ERROR_UNKNOWN;
  }
}

inline int alignment_of(CUdeviceptr pointer) {
  const int low = pointer ? static_cast<int>(pointer & -pointer & 0x1ff) : 256;
  return low == 0 || low > 256 ? 256 : low;
}

// A row-major product is the column-major product of the swapped, transposed-in-place operands.
inline int make_plan(void *handle, const GemmArgs &g, const PlanKey &key, Plan &plan) {
  CublasLt &lt = cublaslt();
  int type, compute = COMPUTE_32F, scale = R_32F;
  switch (g.dtype) {
    case Float16: type = R_16F; break;
    case BFloat16: type = R_16BF; break;
    case Float32: type = R_32F; if (g.compute == 1) compute = COMPUTE_32F_FAST_TF32; break;
    case Float64: type = R_64F; compute = COMPUTE_64F; scale = R_64F; break;
    default: return 15;
  }
  plan.is_double = scale == R_64F;
  if (int s = lt.MatmulDescCreate(&plan.desc, compute, scale)) return s;
  const int op_first = g.transpose_b ? 1 : 0, op_second = g.transpose_a ? 1 : 0;
  if (int s = lt.MatmulDescSetAttribute(plan.desc, DESC_TRANSA, &op_first, sizeof op_first)) return s;
  if (int s = lt.MatmulDescSetAttribute(plan.desc, DESC_TRANSB, &op_second, sizeof op_second)) return s;
  auto layout = [&](void **out, std::int64_t rows, std::int64_t cols, std::int64_t leading,
                    std::int64_t stride) {
    if (int s = lt.MatrixLayoutCreate(out, type, rows, cols, leading)) return s;
    if (g.batch <= 1) return 0;
    const int count = static_cast<int>(g.batch);
    if (int s = lt.MatrixLayoutSetAttribute(*out, LAYOUT_BATCH_COUNT, &count, sizeof count)) return s;
    return lt.MatrixLayoutSetAttribute(*out, LAYOUT_BATCH_STRIDE, &stride, sizeof stride);
  };
  const bool tb = g.transpose_b, ta = g.transpose_a;
  if (int s = layout(&plan.b, tb ? g.k : g.n, tb ? g.n : g.k, g.ldb, g.stride_b)) return s;
  if (int s = layout(&plan.a, ta ? g.m : g.k, ta ? g.k : g.m, g.lda, g.stride_a)) return s;
  if (int s = layout(&plan.c, g.n, g.m, g.ldc, g.stride_c)) return s;
  void *preference = nullptr;
  if (int s = lt.MatmulPreferenceCreate(&preference)) return s;
  const std::uint64_t workspace = g.workspace ? g.workspace_bytes : 0;
  const std::uint32_t align_a = key.align_a, align_b = key.align_b, align_c = key.align_c;
  lt.MatmulPreferenceSetAttribute(preference, PREFERENCE_WORKSPACE, &workspace, sizeof workspace);
  lt.MatmulPreferenceSetAttribute(preference, PREFERENCE_ALIGN_A, &align_b, sizeof align_b);
  lt.MatmulPreferenceSetAttribute(preference, PREFERENCE_ALIGN_B, &align_a, sizeof align_a);
  lt.MatmulPreferenceSetAttribute(preference, PREFERENCE_ALIGN_C, &align_c, sizeof align_c);
  lt.MatmulPreferenceSetAttribute(preference, PREFERENCE_ALIGN_D, &align_c, sizeof align_c);
  LtHeuristic best{};
  int found = 0;
  int status = lt.MatmulAlgoGetHeuristic(handle, plan.desc, plan.b, plan.a, plan.c, plan.c,
                                         preference, 1, &best, &found);
  lt.MatmulPreferenceDestroy(preference);
  if (status) return status;
  if (!found) return 15;
  plan.algorithm = best.algorithm;
  plan.workspace = best.workspace;
  return 0;
}

inline CUresult gemm(const GemmArgs *args, CUstream stream) {
  static std::mutex lock;
  static void *handles[64] = {};
  static std::unordered_map<PlanKey, Plan, PlanKeyHash> plans;
  CublasLt &lt = cublaslt();
  if (!lt.ready) return CUDA_ERROR_NOT_FOUND;
  const GemmArgs &g = *args;
  if (g.m == 0 || g.n == 0 || g.batch == 0) return CUDA_SUCCESS;
  CUdevice device = 0;
  if (CUresult status = library().table.CtxGetDevice(&device)) return status;
  if (device < 0 || device >= 64) return CUDA_ERROR_INVALID_DEVICE;
  PlanKey key{};
  std::memset(static_cast<void *>(&key), 0, sizeof key);
  key.m = g.m; key.n = g.n; key.k = g.k; key.batch = g.batch;
  key.lda = g.lda; key.ldb = g.ldb; key.ldc = g.ldc;
  key.stride_a = g.stride_a; key.stride_b = g.stride_b; key.stride_c = g.stride_c;
  key.workspace = g.workspace ? static_cast<std::int64_t>(g.workspace_bytes) : 0;
  key.transpose_a = g.transpose_a; key.transpose_b = g.transpose_b;
  key.dtype = g.dtype; key.compute = g.compute; key.device = device;
  key.align_a = alignment_of(g.a); key.align_b = alignment_of(g.b); key.align_c = alignment_of(g.c);
  const Plan *plan;
  void *handle;
  {
    std::lock_guard<std::mutex> guard(lock);
    if (!handles[device])
      if (int s = lt.Create(&handles[device])) return blas_failure(s);
    handle = handles[device];
    auto found = plans.find(key);
    if (found == plans.end()) {
      Plan made;
      if (int s = make_plan(handle, g, key, made)) return blas_failure(s);
      found = plans.emplace(key, made).first;
    }
    plan = &found->second;  // stays where it is: the map never erases
  }
  const float alpha32 = static_cast<float>(g.alpha), beta32 = static_cast<float>(g.beta);
  const void *alpha = plan->is_double ? static_cast<const void *>(&g.alpha) : &alpha32;
  const void *beta = plan->is_double ? static_cast<const void *>(&g.beta) : &beta32;
  auto address = [](CUdeviceptr p) { return reinterpret_cast<void *>(p); };
  const int status = lt.Matmul(handle, plan->desc, alpha, address(g.b), plan->b, address(g.a),
                               plan->a, beta, address(g.c), plan->c, address(g.c), plan->c,
                               &plan->algorithm, address(g.workspace), plan->workspace, stream);
  return status ? blas_failure(status) : CUDA_SUCCESS;
}

}  // namespace flambeau::nvidia
