// SPDX-License-Identifier: Apache-2.0
// cuBLAS proper: a handle for each thread and device, and products whose algorithm it chooses itself.
#pragma once
#include <vector>

#include "blas_algorithms.hpp"

namespace flambeau::nvidia {

struct Cublas {
  int (*Create)(void **) = nullptr;
  int (*SetStream)(void *, CUstream) = nullptr;
  int (*SetWorkspace)(void *, void *, std::size_t) = nullptr;
  int (*GetVersion)(void *, int *) = nullptr;
  int (*GemmEx)(void *, int, int, int, int, int, const void *, const void *, int, int, const void *,
                int, int, const void *, void *, int, int, int, int) = nullptr;
  int (*GemmStridedBatchedEx)(void *, int, int, int, int, int, const void *, const void *, int, int,
                              long long, const void *, int, int, long long, const void *, void *, int,
                              int, long long, int, int, int) = nullptr;
  bool ready = false;
};

inline Cublas &cublas() {
  static Cublas *instance = new Cublas();
  return *instance;
}

inline const char *resolve_cublas(void *handle) {
  Cublas &blas = cublas();
#define FLAMBEAU_X(name, symbol)                                        \
  *reinterpret_cast<void **>(&blas.name) = dlsym(handle, symbol);       \
  if (!blas.name) return symbol;
  FLAMBEAU_X(Create, "cublasCreate_v2")
  FLAMBEAU_X(SetStream, "cublasSetStream_v2")
  FLAMBEAU_X(SetWorkspace, "cublasSetWorkspace_v2")
  FLAMBEAU_X(GetVersion, "cublasGetVersion_v2")
  FLAMBEAU_X(GemmEx, "cublasGemmEx")
  FLAMBEAU_X(GemmStridedBatchedEx, "cublasGemmStridedBatchedEx")
#undef FLAMBEAU_X
  blas.ready = true;
  return nullptr;
}

// Handles that no living thread has; making one takes milliseconds and device memory.
struct HandlePool {
  std::mutex lock;
  std::vector<void *> free[64];
};

inline HandlePool &handle_pool() {
  static HandlePool *pool = new HandlePool();
  return *pool;
}

struct ThreadHandles {
  void *of[64] = {};
  ~ThreadHandles() {
    std::lock_guard<std::mutex> guard(handle_pool().lock);
    for (int device = 0; device < 64; ++device) {
      if (of[device]) handle_pool().free[device].push_back(of[device]);
    }
  }
};

// This thread's handle for the current device. It works on `stream` with its own scratch memory,
// which setting the stream gives back to it.
inline CUresult cublas_handle(CUstream stream, void **handle) {
  static thread_local ThreadHandles mine;
  if (!cublas().ready) return CUDA_ERROR_NOT_FOUND;
  CUdevice device = 0;
  if (CUresult status = current_device(&device)) return status;
  void *&own = mine.of[device];
  if (!own) {
    std::lock_guard<std::mutex> guard(handle_pool().lock);
    std::vector<void *> &free = handle_pool().free[device];
    if (!free.empty()) {
      own = free.back();
      free.pop_back();
    }
  }
  if (!own) {
    if (int s = cublas().Create(&own)) return blas_failure(s);
  }
  if (int s = cublas().SetStream(own, stream)) return blas_failure(s);
  *handle = own;
  return CUDA_SUCCESS;
}

inline CUresult cublas_gemm(const GemmArgs &g, CUstream stream) {
  constexpr int DEFAULT_ALGORITHM = -1;
  if (g.m == 0 || g.n == 0 || g.batch == 0) return CUDA_SUCCESS;
  if (g.bias) return CUDA_ERROR_NOT_SUPPORTED;
  constexpr std::int64_t MOST = 0x7fffffff;
  if (g.m > MOST || g.n > MOST || g.k > MOST || g.lda > MOST || g.ldb > MOST || g.ldc > MOST || g.batch > MOST) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  GemmTypes types;
  if (!gemm_types(g.dtype, gemm_kind(g.compute), types)) return CUDA_ERROR_NOT_SUPPORTED;
  void *handle;
  if (CUresult status = cublas_handle(stream, &handle)) return status;
  const auto address = [](CUdeviceptr p) { return reinterpret_cast<void *>(p); };
  if (g.workspace) {
    if (int s = cublas().SetWorkspace(handle, address(g.workspace), g.workspace_bytes)) return blas_failure(s);
  }
  const Factor alpha(g.alpha, types.scale), beta(g.beta, types.scale);
  const int first = g.transpose_b ? 1 : 0, second = g.transpose_a ? 1 : 0;
  const int m = static_cast<int>(g.m), n = static_cast<int>(g.n), k = static_cast<int>(g.k);
  const int lda = static_cast<int>(g.lda), ldb = static_cast<int>(g.ldb), ldc = static_cast<int>(g.ldc);
  const int type = types.matrix;
  const int status =
      g.batch == 1
          ? cublas().GemmEx(handle, first, second, n, m, k, alpha.pointer(), address(g.b), type, ldb,
                            address(g.a), type, lda, beta.pointer(), address(g.c), type, ldc,
                            types.compute, DEFAULT_ALGORITHM)
          : cublas().GemmStridedBatchedEx(handle, first, second, n, m, k, alpha.pointer(), address(g.b),
                                          type, ldb, g.stride_b, address(g.a), type, lda, g.stride_a,
                                          beta.pointer(), address(g.c), type, ldc, g.stride_c,
                                          static_cast<int>(g.batch), types.compute, DEFAULT_ALGORITHM);
  return status ? blas_failure(status) : CUDA_SUCCESS;
}

}  // namespace flambeau::nvidia
