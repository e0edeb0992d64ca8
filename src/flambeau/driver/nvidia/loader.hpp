// SPDX-License-Identifier: Apache-2.0
// Finding NVIDIA's driver at run time: one build imports anywhere and serves every driver version.
#pragma once
#include <dlfcn.h>

#include <cstring>
#include <string>

#include "flambeau/driver/table.hpp"

namespace flambeau::nvidia {

constexpr int API_VERSION = 12000;    // the version whose signatures table.hpp declares, but for
constexpr int EDGE_VERSION = 12030;   // those that came with it, and these, which tell of edges since then:
constexpr const char *EDGE_FUNCTIONS[] = {
    "cuStreamGetCaptureInfo", "cuGraphGetEdges", "cuGraphNodeGetDependencies", "cuGraphAddNode",
    "cuStreamUpdateCaptureDependencies", "cuStreamBeginCaptureToGraph", "cuGraphConditionalHandleCreate"};
constexpr int NEWER_VERSION = 13010;  // of functions that API_VERSION does not have yet
constexpr const char *OWN_FUNCTIONS[] = {"cuGemm", "cuSpin", "cuMemNoteBlock", "cuGraphBeginBody",
                                         "cuGraphSetConditional"};   // no driver has these

template <std::size_t N>
bool is_among(const char *name, const char *const (&names)[N]) {
  for (const char *other : names) {
    if (std::strcmp(name, other) == 0) return true;
  }
  return false;
}

// Functions that only this driver needs, outside the shared table.
struct Extra {
  CUresult (*ModuleLoadDataEx)(void **, const void *, unsigned, int *, void **) = nullptr;
  CUresult (*ModuleGetFunction)(CUfunction *, void *, const char *) = nullptr;
  CUresult (*ModuleGetGlobal)(CUdeviceptr *, std::size_t *, void *, const char *) = nullptr;
  CUresult (*ModuleUnload)(void *) = nullptr;
  // Of conditional nodes; null in drivers before 12.3.
  CUresult (*GraphConditionalHandleCreate)(std::uint64_t *, CUgraph, CUcontext, unsigned, unsigned) = nullptr;
  CUresult (*GraphAddNode)(CUgraphNode *, CUgraph, const CUgraphNode *, const CUgraphEdgeData *, std::size_t,
                           void *) = nullptr;
  CUresult (*StreamUpdateCaptureDependencies)(CUstream, CUgraphNode *, const CUgraphEdgeData *, std::size_t,
                                              unsigned) = nullptr;
  CUresult (*StreamBeginCaptureToGraph)(CUstream, CUgraph, const CUgraphNode *, const CUgraphEdgeData *,
                                        std::size_t, int) = nullptr;
};

struct Library {
  void *handle = nullptr;
  DriverTable table;
  Extra extra;
  std::string error;    // why load() failed
  std::string missing;  // entries this driver version lacks, comma separated
};

using GetProcAddress = CUresult (*)(const char *, void **, int, std::uint64_t, int *);

// 0 loaded; 1 there is no library; 2 it is too old to have cuGetProcAddress_v2.
inline int load(Library &library, const char *file) {
  library.handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (!library.handle) {
    const char *reason = dlerror();
    library.error = reason ? reason : "unknown reason";
    return 1;
  }
  auto get = reinterpret_cast<GetProcAddress>(dlsym(library.handle, "cuGetProcAddress_v2"));
  if (!get) {
    library.error = "it has no cuGetProcAddress_v2";
    return 2;
  }
  int newest = 0;   // what the driver itself is; it objects to questions about later versions
  const auto get_version = reinterpret_cast<CUresult (*)(int *)>(dlsym(library.handle, "cuDriverGetVersion"));
  if (!get_version || get_version(&newest) != CUDA_SUCCESS) newest = API_VERSION;
  auto find = [&](const char *name, void **slot) {
    *slot = nullptr;
    if (is_among(name, OWN_FUNCTIONS)) return;
    int found = 0;
    const int first = is_among(name, EDGE_FUNCTIONS) ? EDGE_VERSION : API_VERSION;
    for (const int version : {first, EDGE_VERSION, NEWER_VERSION}) {
      if (version > newest) continue;
      if (get(name, slot, version, 0, &found) == CUDA_SUCCESS && *slot) return;
    }
    *slot = nullptr;   // some drivers leave something there
    library.missing += library.missing.empty() ? name : std::string(", ") + name;
  };
#define FLAMBEAU_X(name, ...) \
  find("cu" #name, reinterpret_cast<void **>(&library.table.name));
  FLAMBEAU_DRIVER_ENTRIES(FLAMBEAU_X)
#undef FLAMBEAU_X
  find("cuModuleLoadDataEx", reinterpret_cast<void **>(&library.extra.ModuleLoadDataEx));
  find("cuModuleGetFunction", reinterpret_cast<void **>(&library.extra.ModuleGetFunction));
  find("cuModuleGetGlobal", reinterpret_cast<void **>(&library.extra.ModuleGetGlobal));
  find("cuModuleUnload", reinterpret_cast<void **>(&library.extra.ModuleUnload));
  find("cuGraphConditionalHandleCreate", reinterpret_cast<void **>(&library.extra.GraphConditionalHandleCreate));
  find("cuGraphAddNode", reinterpret_cast<void **>(&library.extra.GraphAddNode));
  find("cuStreamUpdateCaptureDependencies",
       reinterpret_cast<void **>(&library.extra.StreamUpdateCaptureDependencies));
  find("cuStreamBeginCaptureToGraph", reinterpret_cast<void **>(&library.extra.StreamBeginCaptureToGraph));
  return 0;
}

inline Library &library() {
  static Library *instance = new Library();
  return *instance;
}

}  // namespace flambeau::nvidia
