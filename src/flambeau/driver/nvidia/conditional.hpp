// SPDX-License-Identifier: Apache-2.0
// Bodies of conditional nodes in a graph under capture: a kernel sets the condition from a byte in
// device memory, then comes the node, and a second stream is captured into its body.
#pragma once
#include "ptx_kernel.hpp"

namespace flambeau::nvidia {

// The driver itself provides cudaGraphSetConditional to PTX that it compiles.
inline constexpr const char *SET_CONDITIONAL_PTX = R"(
.version 8.3
.target sm_75
.address_size 64
.extern .func cudaGraphSetConditional(.param .b64 handle, .param .b32 value);
.visible .entry set_conditional(.param .u64 handle, .param .u64 address)
{
  .reg .u64 %handle, %address;
  .reg .u16 %byte;
  .reg .u32 %value;
  ld.param.u64 %handle, [handle];
  ld.param.u64 %address, [address];
  cvta.to.global.u64 %address, %address;
  ld.global.u8 %byte, [%address];
  cvt.u32.u16 %value, %byte;
  {
    .param .b64 to_set;
    .param .b32 to_what;
    st.param.b64 [to_set], %handle;
    st.param.b32 [to_what], %value;
    call.uni cudaGraphSetConditional, (to_set, to_what);
  }
  ret;
}
)";

inline CUresult set_conditional(std::uint64_t handle, CUdeviceptr value, CUstream stream) {
  static PtxKernel kernel(SET_CONDITIONAL_PTX, "set_conditional");
  void *parameters[] = {&handle, &value};
  return launch_single(kernel, stream, parameters);
}

// CUgraphNodeParams, as far as conditional nodes need it.
struct ConditionalNodeParams {
  int type = 13;                        // CU_GRAPH_NODE_TYPE_CONDITIONAL
  int reserved0[3] = {};
  std::uint64_t handle = 0;
  int kind = 0;                         // 0 if, 1 while
  unsigned size = 1;                    // bodies
  CUgraph *bodies = nullptr;            // the driver's answer
  CUcontext context = nullptr;
  char reserved1[208] = {};
};
static_assert(sizeof(ConditionalNodeParams) == 256, "the size of CUgraphNodeParams");

inline CUresult begin_body(CUstream s, CUstream body, CUdeviceptr value, int kind, std::uint64_t *handle) {
  Library &lib = library();
  if (!lib.extra.GraphConditionalHandleCreate || !lib.extra.GraphAddNode ||
      !lib.extra.StreamUpdateCaptureDependencies || !lib.extra.StreamBeginCaptureToGraph) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  int capturing = 0;
  CUgraph graph = nullptr;
  const CUgraphNode *dependencies = nullptr;
  const CUgraphEdgeData *edges = nullptr;
  std::size_t count = 0;
  const auto ask = [&] {
    return lib.table.StreamGetCaptureInfo(s, &capturing, nullptr, &graph, &dependencies, &edges, &count);
  };
  ConditionalNodeParams node;
  if (CUresult status = lib.table.CtxGetCurrent(&node.context)) return status;
  if (CUresult status = ask()) return status;
  if (capturing != 1) return CUDA_ERROR_ILLEGAL_STATE;
  if (CUresult status = lib.extra.GraphConditionalHandleCreate(&node.handle, graph, node.context, 0, 1))
    return status;
  if (CUresult status = set_conditional(node.handle, value, s)) return status;
  if (CUresult status = ask()) return status;
  node.kind = kind;
  CUgraphNode made = nullptr;
  if (CUresult status = lib.extra.GraphAddNode(&made, graph, dependencies, edges, count, &node)) return status;
  if (CUresult status = lib.extra.StreamUpdateCaptureDependencies(s, &made, nullptr, 1, 1)) return status;
  *handle = node.handle;
  return lib.extra.StreamBeginCaptureToGraph(body, node.bodies[0], nullptr, nullptr, 0, 2);   // relaxed
}

}  // namespace flambeau::nvidia
