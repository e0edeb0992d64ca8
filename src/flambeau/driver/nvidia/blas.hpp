// SPDX-License-Identifier: Apache-2.0
// Matrix products through cuBLASLt's C functions. What a product of one shape needs (descriptors,
// layouts, the algorithm that the library's heuristic picked) is made once and kept.
#pragma once
#include <algorithm>
#include <cstring>
#include <mutex>
#include <unordered_map>

#include "flambeau/driver/gemm_options.hpp"
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
  int (*MatmulAlgoCheck)(void *, void *, void *, void *, void *, void *, const LtAlgorithm *,
                         LtHeuristic *);
  int (*MatmulAlgoConfigGetAttribute)(const LtAlgorithm *, int, void *, std::size_t, std::size_t *);
  int (*MatmulAlgoConfigSetAttribute)(LtAlgorithm *, int, const void *, std::size_t);
  int (*MatmulAlgoInit)(void *, int compute, int scale, int a, int b, int c, int d, int id,
                        LtAlgorithm *);
  int (*MatmulDescDestroy)(void *);
  int (*MatrixLayoutDestroy)(void *);
  std::size_t (*GetVersion)();
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
  FLAMBEAU_X(MatmulAlgoCheck)
  FLAMBEAU_X(MatmulAlgoConfigGetAttribute)
  FLAMBEAU_X(MatmulAlgoConfigSetAttribute)
  FLAMBEAU_X(MatmulAlgoInit)
  FLAMBEAU_X(MatmulDescDestroy)
  FLAMBEAU_X(MatrixLayoutDestroy)
  FLAMBEAU_X(GetVersion)
#undef FLAMBEAU_X
  lt.ready = true;
  return nullptr;
}

// cuBLASLt's numbers.
enum : int {
  COMPUTE_16F = 64, COMPUTE_32F = 68, COMPUTE_64F = 70, COMPUTE_32F_FAST_TF32 = 77,
  COMPUTE_32F_EMULATED_16BFX9 = 78,
  R_32F = 0, R_64F = 1, R_16F = 2, C_32F = 4, C_64F = 5, R_16BF = 14,
  DESC_TRANSA = 3, DESC_TRANSB = 4, DESC_EPILOGUE = 7, DESC_BIAS = 8, EPILOGUE_BIAS = 4,
  LAYOUT_BATCH_COUNT = 5, LAYOUT_BATCH_STRIDE = 6,
  PREFERENCE_WORKSPACE = 1, PREFERENCE_REDUCTION = 3, PREFERENCE_ALIGN_A = 5, PREFERENCE_ALIGN_B = 6,
  PREFERENCE_ALIGN_C = 7, PREFERENCE_ALIGN_D = 8,
};

struct PlanKey {
  std::int64_t m, n, k, batch, lda, ldb, ldc, stride_a, stride_b, stride_c;
  std::int64_t workspace;
  int transpose_a, transpose_b, dtype, compute, device;
  int align_a, align_b, align_c;  // bytes, 16 .. 256
  int align_bias, padding;        // 0 where there is none
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
};

// The library's numbers for a product's matrices, sums and factors.
struct GemmTypes { int matrix, compute, scale; };

inline bool gemm_types(int dtype, int kind, GemmTypes &types) {
  switch (dtype) {
    case Float16: types = {R_16F, COMPUTE_32F, R_32F}; break;
    case BFloat16: types = {R_16BF, COMPUTE_32F, R_32F}; break;
    case Float32: types = {R_32F, COMPUTE_32F, R_32F}; break;
    case Float64: types = {R_64F, COMPUTE_64F, R_64F}; break;
    case Complex64: types = {C_32F, COMPUTE_32F, C_32F}; break;
    case Complex128: types = {C_64F, COMPUTE_64F, C_64F}; break;
    default: return false;
  }
  if (types.matrix == R_32F || types.matrix == C_32F) {
    if (kind == GEMM_TF32) types.compute = COMPUTE_32F_FAST_TF32;
    if (kind == GEMM_BF16X9) types.compute = COMPUTE_32F_EMULATED_16BFX9;
  }
  if (types.matrix == R_16F && kind == GEMM_HALF_SUMS) types.compute = COMPUTE_16F, types.scale = R_16F;
  return true;
}

// A real factor in the form that the library reads.
struct Factor {
  explicit Factor(double value, int scale) {
    const float narrow = static_cast<float>(value);
    switch (scale) {
      case R_64F: case C_64F: wide_[0] = value; break;
      case R_16F: half_ = half_bits(narrow); break;
      default: narrow_[0] = narrow;
    }
  }
  const void *pointer() const { return this; }

 private:
  static std::uint16_t half_bits(float value) {
    std::uint32_t bits;
    std::memcpy(&bits, &value, 4);
    const std::uint32_t sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
    if (magnitude >= 0x47800000u) return static_cast<std::uint16_t>(sign | (magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u));
    if (magnitude < 0x38800000u) {  // below the smallest normal number: a multiple of 2^-24
      float scaled;
      std::memcpy(&scaled, &magnitude, 4);
      return static_cast<std::uint16_t>(sign | static_cast<std::uint32_t>(scaled * 16777216.0f + 0.5f));
    }
    const std::uint32_t rounded = magnitude + 0xfffu + (magnitude >> 13 & 1u);
    return static_cast<std::uint16_t>(sign | ((rounded >> 13) - (112u << 10)));
  }
  union {
    double wide_[2] = {0, 0};
    float narrow_[4];
    std::uint16_t half_;
  };
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

inline int make_description(const GemmArgs &g, const GemmTypes &types, void **desc) {
  CublasLt &lt = cublaslt();
  if (int s = lt.MatmulDescCreate(desc, types.compute, types.scale)) return s;
  const auto set = [&](int attribute, auto value) {
    return lt.MatmulDescSetAttribute(*desc, attribute, &value, sizeof value);
  };
  if (int s = set(DESC_TRANSA, g.transpose_b ? 1 : 0)) return s;
  if (int s = set(DESC_TRANSB, g.transpose_a ? 1 : 0)) return s;
  if (!g.bias) return 0;
  if (int s = set(DESC_EPILOGUE, static_cast<int>(EPILOGUE_BIAS))) return s;
  return set(DESC_BIAS, g.bias);
}

// A row-major product is the column-major product of the swapped, transposed-in-place operands.
inline int make_layouts(const GemmArgs &g, const GemmTypes &types, Plan &plan) {
  CublasLt &lt = cublaslt();
  if (int s = make_description(g, types, &plan.desc)) return s;
  auto layout = [&](void **out, std::int64_t rows, std::int64_t cols, std::int64_t leading,
                    std::int64_t stride) {
    if (int s = lt.MatrixLayoutCreate(out, types.matrix, static_cast<std::uint64_t>(rows),
                                      static_cast<std::uint64_t>(cols), leading)) {
      return s;
    }
    if (g.batch <= 1) return 0;
    const int count = static_cast<int>(g.batch);
    if (int s = lt.MatrixLayoutSetAttribute(*out, LAYOUT_BATCH_COUNT, &count, sizeof count)) return s;
    return lt.MatrixLayoutSetAttribute(*out, LAYOUT_BATCH_STRIDE, &stride, sizeof stride);
  };
  const bool tb = g.transpose_b, ta = g.transpose_a;
  if (int s = layout(&plan.b, tb ? g.k : g.n, tb ? g.n : g.k, g.ldb, g.stride_b)) return s;
  if (int s = layout(&plan.a, ta ? g.m : g.k, ta ? g.k : g.m, g.lda, g.stride_a)) return s;
  return layout(&plan.c, g.n, g.m, g.ldc, g.stride_c);
}

// What an algorithm may assume and use; the caller destroys it.
inline int make_preference(const PlanKey &key, std::uint64_t workspace, void **preference) {
  CublasLt &lt = cublaslt();
  if (int s = lt.MatmulPreferenceCreate(preference)) return s;
  const auto set = [&](int attribute, auto value) {
    lt.MatmulPreferenceSetAttribute(*preference, attribute, &value, sizeof value);
  };
  const auto alignment = [](int bytes) { return static_cast<std::uint32_t>(bytes); };
  set(PREFERENCE_WORKSPACE, workspace);
  set(PREFERENCE_ALIGN_A, alignment(key.align_b));
  set(PREFERENCE_ALIGN_B, alignment(key.align_a));
  set(PREFERENCE_ALIGN_C, alignment(key.align_c));
  set(PREFERENCE_ALIGN_D, alignment(key.align_bias ? std::min(key.align_c, key.align_bias) : key.align_c));
  if (key.compute & GEMM_ONE_PASS) set(PREFERENCE_REDUCTION, std::uint32_t{0});
  else if (key.compute & GEMM_WIDE_REDUCTION) set(PREFERENCE_REDUCTION, std::uint32_t{2});
  return 0;
}

// Algorithms that were chosen by number rather than by the library.
struct ChosenAlgorithm { LtAlgorithm algorithm; std::size_t workspace; };

inline ChosenAlgorithm *chosen_algorithm(int index);

inline int make_plan(void *handle, const GemmArgs &g, const PlanKey &key, Plan &plan) {
  CublasLt &lt = cublaslt();
  GemmTypes types;
  if (!gemm_types(g.dtype, gemm_kind(g.compute), types)) return 15;
  if (int s = make_layouts(g, types, plan)) return s;
  if (const ChosenAlgorithm *chosen = chosen_algorithm(gemm_algorithm(g.compute))) {
    LtHeuristic checked{};
    if (int s = lt.MatmulAlgoCheck(handle, plan.desc, plan.b, plan.a, plan.c, plan.c,
                                   &chosen->algorithm, &checked)) {
      return s;
    }
    if (checked.workspace > static_cast<std::size_t>(key.workspace)) return 7;
    plan.algorithm = chosen->algorithm;
    plan.workspace = checked.workspace;
    return 0;
  }
  void *preference = nullptr;
  if (int s = make_preference(key, static_cast<std::uint64_t>(key.workspace), &preference)) return s;
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

inline void fill_key(const GemmArgs &g, CUdevice device, PlanKey &key) {
  std::memset(static_cast<void *>(&key), 0, sizeof key);
  key.m = g.m; key.n = g.n; key.k = g.k; key.batch = g.batch;
  key.lda = g.lda; key.ldb = g.ldb; key.ldc = g.ldc;
  key.stride_a = g.stride_a; key.stride_b = g.stride_b; key.stride_c = g.stride_c;
  key.workspace = g.workspace ? static_cast<std::int64_t>(g.workspace_bytes) : 0;
  key.transpose_a = g.transpose_a; key.transpose_b = g.transpose_b;
  key.dtype = g.dtype; key.compute = g.compute; key.device = device;
  key.align_a = alignment_of(g.a); key.align_b = alignment_of(g.b); key.align_c = alignment_of(g.c);
  key.align_bias = g.bias ? alignment_of(g.bias) : 0;
}

// cuBLASLt's handle of a device, made at first use. The caller holds the lock of the plans.
inline int lt_handle(CUdevice device, void **handle) {
  static void *handles[64] = {};
  if (!handles[device]) {
    if (int s = cublaslt().Create(&handles[device])) return s;
  }
  *handle = handles[device];
  return 0;
}

inline std::mutex &plan_lock() {
  static std::mutex *lock = new std::mutex();
  return *lock;
}

inline CUresult current_device(CUdevice *device) {
  if (CUresult status = library().table.CtxGetDevice(device)) return status;
  return *device < 0 || *device >= 64 ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

inline CUresult gemm(const GemmArgs *args, CUstream stream) {
  static std::unordered_map<PlanKey, Plan, PlanKeyHash> plans;
  CublasLt &lt = cublaslt();
  if (!lt.ready) return CUDA_ERROR_NOT_FOUND;
  const GemmArgs &g = *args;
  if (g.m == 0 || g.n == 0 || g.batch == 0) return CUDA_SUCCESS;
  CUdevice device = 0;
  if (CUresult status = current_device(&device)) return status;
  PlanKey key{};
  fill_key(g, device, key);
  const Plan *plan;
  void *handle;
  {
    std::lock_guard<std::mutex> guard(plan_lock());
    if (int s = lt_handle(device, &handle)) return blas_failure(s);
    auto found = plans.find(key);
    if (found == plans.end()) {
      Plan made;
      if (int s = make_plan(handle, g, key, made)) return blas_failure(s);
      found = plans.emplace(key, made).first;
    }
    plan = &found->second;  // stays where it is: the map never erases
  }
  GemmTypes types;
  gemm_types(g.dtype, gemm_kind(g.compute), types);
  const Factor alpha(g.alpha, types.scale), beta(g.beta, types.scale);
  auto address = [](CUdeviceptr p) { return reinterpret_cast<void *>(p); };
  void *desc = plan->desc;  // threads share it, so that one with an address in it is made anew
  if (g.bias) {
    if (int s = make_description(g, types, &desc)) return blas_failure(s);
  }
  const int status = lt.Matmul(handle, desc, alpha.pointer(), address(g.b), plan->b,
                               address(g.a), plan->a, beta.pointer(), address(g.c), plan->c,
                               address(g.c), plan->c, &plan->algorithm, address(g.workspace),
                               plan->workspace, stream);
  if (g.bias) lt.MatmulDescDestroy(desc);
  return status ? blas_failure(status) : CUDA_SUCCESS;
}

}  // namespace flambeau::nvidia
