// SPDX-License-Identifier: Apache-2.0
// The algorithms that may compute one product: what cuBLASLt's heuristic names, and these with k
// split in other ways. Each that is tried gets a number, which GemmArgs::compute carries.
#pragma once
#include <deque>
#include <set>
#include <vector>

#include "blas.hpp"

namespace flambeau::nvidia {

constexpr int CUBLAS_ALGORITHM = 1;   // cuBLAS itself chooses
constexpr int FIRST_CHOSEN = 2;

// In the order of cublasLtMatmulAlgoConfigAttributes_t; the last two are 16 bits wide.
enum Setting : int { ID, TILE, SPLIT_K, REDUCTION, SWIZZLE, CUSTOM, STAGES, INNER, CLUSTER, SETTINGS };

struct AlgorithmSettings {
  std::uint32_t value[SETTINGS] = {};
  bool operator<(const AlgorithmSettings &other) const {
    return std::memcmp(value, other.value, sizeof value) < 0;
  }
};

inline std::size_t setting_bytes(int setting) { return setting >= INNER ? 2 : 4; }

inline AlgorithmSettings settings_of(const LtAlgorithm &algorithm) {
  AlgorithmSettings settings;
  for (int i = 0; i < SETTINGS; ++i) {
    std::size_t written = 0;
    cublaslt().MatmulAlgoConfigGetAttribute(&algorithm, i, &settings.value[i], setting_bytes(i), &written);
  }
  return settings;
}

inline std::deque<ChosenAlgorithm> &chosen_algorithms() {
  static std::deque<ChosenAlgorithm> *all = new std::deque<ChosenAlgorithm>();
  return *all;
}

// Called with the lock of the plans, as are those below.
inline ChosenAlgorithm *chosen_algorithm(int index) {
  const int position = index - FIRST_CHOSEN;
  if (position < 0 || position >= static_cast<int>(chosen_algorithms().size())) return nullptr;
  return &chosen_algorithms()[static_cast<std::size_t>(position)];
}

struct Candidate {
  AlgorithmSettings settings;
  std::size_t workspace = 0;
  int index = 0;   // what GemmArgs::compute says to get it
};

// The number of an algorithm, a new one if it has none.
inline int remember(const LtAlgorithm &algorithm, std::size_t workspace) {
  std::deque<ChosenAlgorithm> &all = chosen_algorithms();
  std::size_t at = 0;
  while (at < all.size() && std::memcmp(&all[at].algorithm, &algorithm, sizeof algorithm)) ++at;
  if (at == all.size()) all.push_back({algorithm, workspace});
  return FIRST_CHOSEN + static_cast<int>(at);
}

// Descriptors for one enquiry.
struct Enquiry : Plan {
  ~Enquiry() {
    if (desc) cublaslt().MatmulDescDestroy(desc);
    for (void *layout : {a, b, c}) {
      if (layout) cublaslt().MatrixLayoutDestroy(layout);
    }
  }
};

class Candidates {
 public:
  Candidates(void *handle, const Plan &plan, std::size_t most_workspace)
      : handle_(handle), plan_(plan), most_workspace_(most_workspace) {}

  // Take an algorithm if it can compute this product.
  bool add(const LtAlgorithm &algorithm) {
    const AlgorithmSettings settings = settings_of(algorithm);
    if (!seen_.insert(settings).second) return false;
    LtHeuristic checked{};
    const int status = cublaslt().MatmulAlgoCheck(handle_, plan_.desc, plan_.b, plan_.a, plan_.c,
                                                  plan_.c, &algorithm, &checked);
    if (status || checked.workspace > most_workspace_) return false;
    found_.push_back({settings, checked.workspace, remember(algorithm, checked.workspace)});
    return true;
  }
  std::vector<Candidate> &found() { return found_; }

 private:
  void *handle_;
  const Plan &plan_;
  std::size_t most_workspace_;
  std::set<AlgorithmSettings> seen_;
  std::vector<Candidate> found_;
};

inline LtAlgorithm with(LtAlgorithm algorithm, int setting, std::uint32_t value) {
  cublaslt().MatmulAlgoConfigSetAttribute(&algorithm, setting, &value, setting_bytes(setting));
  return algorithm;
}

// Variants of a good algorithm: k in more parts, blocks walked in another order.
inline void add_variants(Candidates &all, const LtAlgorithm &algorithm, const GemmArgs &g) {
  if (!(g.compute & GEMM_ONE_PASS)) {
    for (const std::uint32_t parts : {2u, 3u, 4u, 6u, 8u, 12u, 16u}) {
      if (g.k < static_cast<std::int64_t>(parts) * 128) break;
      all.add(with(with(algorithm, SPLIT_K, parts), REDUCTION, 2u));
    }
  }
  all.add(with(algorithm, SWIZZLE, settings_of(algorithm).value[SWIZZLE] ? 0u : 1u));
}

// What the library's heuristic thinks of a product under several limits of scratch memory, best
// first, then variants of the first few.
inline CUresult list_algorithms(const GemmArgs &g, int requested, std::vector<Candidate> &result) {
  CUdevice device = 0;
  if (CUresult status = current_device(&device)) return status;
  std::lock_guard<std::mutex> guard(plan_lock());
  void *handle;
  if (int s = lt_handle(device, &handle)) return blas_failure(s);
  GemmTypes types;
  Enquiry plan;
  if (!gemm_types(g.dtype, gemm_kind(g.compute), types)) return CUDA_ERROR_NOT_SUPPORTED;
  if (int s = make_layouts(g, types, plan)) return blas_failure(s);
  PlanKey key{};
  fill_key(g, device, key);
  Candidates all(handle, plan, g.workspace_bytes);
  std::vector<LtHeuristic> named(static_cast<std::size_t>(requested));
  std::vector<LtAlgorithm> best;
  for (const std::size_t limit : {g.workspace_bytes, std::size_t{1} << 20, std::size_t{0}}) {
    if (limit > g.workspace_bytes) continue;
    void *preference = nullptr;
    if (int s = make_preference(key, limit, &preference)) return blas_failure(s);
    int found = 0;
    const int status = cublaslt().MatmulAlgoGetHeuristic(handle, plan.desc, plan.b, plan.a, plan.c, plan.c,
                                                         preference, requested, named.data(), &found);
    cublaslt().MatmulPreferenceDestroy(preference);
    if (status) continue;   // under this limit there is none
    for (int i = 0; i < found; ++i) {
      const LtHeuristic &one = named[static_cast<std::size_t>(i)];
      if (one.status == 0 && all.add(one.algorithm) && best.size() < 3) best.push_back(one.algorithm);
    }
  }
  for (const LtAlgorithm &algorithm : best) add_variants(all, algorithm, g);
  result = std::move(all.found());
  return CUDA_SUCCESS;
}

// The algorithm with these settings, if this library has it and it can compute the product.
inline CUresult find_algorithm(const GemmArgs &g, const AlgorithmSettings &wanted, Candidate &result) {
  CUdevice device = 0;
  if (CUresult status = current_device(&device)) return status;
  std::lock_guard<std::mutex> guard(plan_lock());
  void *handle;
  if (int s = lt_handle(device, &handle)) return blas_failure(s);
  GemmTypes types;
  Enquiry plan;
  if (!gemm_types(g.dtype, gemm_kind(g.compute), types)) return CUDA_ERROR_NOT_SUPPORTED;
  if (int s = make_layouts(g, types, plan)) return blas_failure(s);
  LtAlgorithm algorithm{};
  if (int s = cublaslt().MatmulAlgoInit(handle, types.compute, types.scale, types.matrix, types.matrix,
                                        types.matrix, types.matrix, static_cast<int>(wanted.value[ID]),
                                        &algorithm)) {
    return blas_failure(s);
  }
  for (int i = TILE; i < SETTINGS; ++i) {
    std::uint32_t value = wanted.value[i];
    if (int s = cublaslt().MatmulAlgoConfigSetAttribute(&algorithm, i, &value, setting_bytes(i))) {
      return blas_failure(s);
    }
  }
  Candidates one(handle, plan, g.workspace_bytes);
  if (!one.add(algorithm)) return CUDA_ERROR_NOT_SUPPORTED;
  result = one.found()[0];
  return CUDA_SUCCESS;
}

}  // namespace flambeau::nvidia
