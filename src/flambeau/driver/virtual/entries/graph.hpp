// SPDX-License-Identifier: Apache-2.0
// Entries: stream capture and graphs.
#pragma once
#include "flambeau/driver/virtual/graph/dot.hpp"
#include "flambeau/driver/virtual/graph/rules.hpp"
#include "flambeau/driver/virtual/kernel/function.hpp"
#include "flambeau/driver/virtual/graph/conditional.hpp"
#include "kernel.hpp"

namespace flambeau::vgpu::entries {

inline CUresult StreamBeginCapture(CUstream handle, int mode) {
  Call call;
  Stream *stream = call.stream(handle);
  if (!stream) return call.status();
  if (mode < CAPTURE_GLOBAL || mode > CAPTURE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
  if (stream->legacy) {
    return call.fail(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "The default stream cannot be captured.");
  }
  if (stream->capture) {
    return call.fail(CUDA_ERROR_ILLEGAL_STATE, "The " + stream->name + " is being captured already.");
  }
  GraphBook &book = call.machine().graphs;
  auto capture = std::make_shared<Capture>();
  capture->id = ++book.capture_ids;
  capture->mode = static_cast<CaptureMode>(mode);
  capture->thread = std::this_thread::get_id();
  capture->origin = stream;
  capture->graph = std::make_unique<Graph>();
  capture->graph->id = ++book.ids;
  capture->members.insert(stream);
  stream->capture = capture;
  stream->frontier.clear();
  book.captures.push_back(std::move(capture));
  return CUDA_SUCCESS;
}

inline CUresult StreamEndCapture(CUstream handle, CUgraph *graph) {
  Call call;
  Stream *stream = call.stream(handle);
  if (!stream) return call.status();
  if (!graph) return CUDA_ERROR_INVALID_VALUE;
  *graph = nullptr;
  const std::shared_ptr<Capture> capture = stream->capture;
  if (!capture) {
    return call.fail(CUDA_ERROR_ILLEGAL_STATE, "The " + stream->name + " is not being captured.");
  }
  if (capture->origin != stream) {
    return refuse(call, *capture, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED,
                  "The capture began on " + capture->origin->name + " and was to end on " + stream->name + ".");
  }
  if (capture->mode != CAPTURE_RELAXED && capture->thread != std::this_thread::get_id()) {
    end_capture(call.machine(), capture);   // as CUDA does: the capture is over
    return call.fail(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, "Another thread began this capture.");
  }
  const GraphNode *loose = capture->broken() ? nullptr : unjoined(*capture);
  if (capture->broken()) refuse_broken(call, *capture);
  if (loose) {
    call.fail(CUDA_ERROR_STREAM_CAPTURE_UNJOINED,
              "The work captured on " + loose->stream_name + " is not waited for by " + stream->name +
                  ", on which the capture began. Let it wait for that stream before the end.");
  }
  std::unique_ptr<Graph> made = end_capture(call.machine(), capture);
  if (call.failed()) return call.status();
  *graph = reinterpret_cast<CUgraph>(made.get());
  if (capture->body) {
    capture->body->graph = std::move(made);
  } else {
    call.machine().graphs.graphs[*graph] = std::move(made);
  }
  return CUDA_SUCCESS;
}

// 0 no capture, 1 active, 2 invalid; the default stream refuses to say while a blocking stream of its
// context is captured.
inline int capture_status(Call &call, const Stream &stream) {
  if (stream.legacy && implicit_capture(call.machine(), *stream.context)) {
    call.fail(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    return 0;
  }
  return !stream.capture ? 0 : stream.capture->broken() ? 2 : 1;
}

inline CUresult StreamIsCapturing(CUstream handle, int *status) {
  Call call;
  const Stream *stream = call.stream(handle);
  if (!stream) return call.status();
  if (!status) return CUDA_ERROR_INVALID_VALUE;
  *status = capture_status(call, *stream);
  return call.status();
}

// The dependencies are valid until the next call for this stream. All edges here are plain.
inline CUresult StreamGetCaptureInfo(CUstream handle, int *status, std::uint64_t *id, CUgraph *graph,
                                     const CUgraphNode **dependencies, const CUgraphEdgeData **edges,
                                     std::size_t *count) {
  Call call;
  const Stream *stream = call.stream(handle);
  if (!stream) return call.status();
  if (!status) return CUDA_ERROR_INVALID_VALUE;
  *status = capture_status(call, *stream);
  if (*status != 1) return call.status();
  if (id) *id = stream->capture->id;
  if (graph) *graph = reinterpret_cast<CUgraph>(stream->capture->graph.get());
  if (dependencies) *dependencies = reinterpret_cast<const CUgraphNode *>(stream->frontier.data());
  if (edges) *edges = nullptr;
  if (count) *count = stream->frontier.size();
  return CUDA_SUCCESS;
}

inline CUresult ThreadExchangeStreamCaptureMode(int *mode) {
  Call call(0);
  if (call.failed()) return call.status();
  if (!mode || *mode < CAPTURE_GLOBAL || *mode > CAPTURE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
  const CaptureMode before = thread_capture_mode;
  thread_capture_mode = static_cast<CaptureMode>(*mode);
  *mode = before;
  return CUDA_SUCCESS;
}

inline CUresult GraphDestroy(CUgraph handle) {
  Call call;
  if (call.failed()) return call.status();
  return call.machine().graphs.graphs.erase(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

inline void add_kernels(const Graph &graph, std::set<CUfunction> &found) {
  for (const auto &node : graph.nodes) {
    if (node->work.function) found.insert(node->work.function);
    if (node->body && node->body->graph) add_kernels(*node->body->graph, found);
  }
}

// The graph may have been captured while no check was on.
inline void make_watched(CUgraphExec handle) {
  if (process().gate.load() != CUDA_SUCCESS) return;
  std::set<CUfunction> kernels;
  {
    Machine &machine = *process().machine.load();
    std::lock_guard<std::mutex> guard(machine.mutex);
    if (const GraphExec *exec = machine.graphs.find(handle)) kernels = exec->kernels;
  }
  for (const CUfunction kernel : kernels) make_watched(kernel);
}

// Flags: 1 free on launch, 2 upload, 4 device launch, 8 use node priorities. None changes what runs.
inline CUresult GraphInstantiateWithFlags(CUgraphExec *exec, CUgraph handle, std::uint64_t flags) {
  Call call;
  if (call.failed()) return call.status();
  GraphBook &book = call.machine().graphs;
  auto found = book.graphs.find(handle);
  if (!exec || flags > 15 || found == book.graphs.end()) return CUDA_ERROR_INVALID_VALUE;
  if (refuse_unsafe(call, "cuGraphInstantiate")) return call.status();
  auto made = std::make_unique<GraphExec>();
  made->id = ++book.ids;
  made->memory = found->second->memory;
  add_kernels(*found->second, made->kernels);
  for (const auto &node : found->second->nodes) {
    std::shared_ptr<Task> task = task_of(*node);
    if (node->body && !task) {
      return call.fail(CUDA_ERROR_NOT_SUPPORTED,
                       "The body of a conditional node holds kernels, copies, fills and conditional nodes, "
                       "no host functions and no external events; and its capture must have ended.");
    }
    GraphExec::Step step{node->context, node->stream_name, std::move(task), node->work.type,
                         node->event, {}, node->dependents.empty(), node->id, node->trace_number};
    step.partition = node->partition;
    for (const GraphNode *earlier : node->dependencies) step.after.push_back(earlier->id);
    made->add(std::move(step));
  }
  *exec = reinterpret_cast<CUgraphExec>(made.get());
  book.execs[*exec] = std::move(made);
  return CUDA_SUCCESS;
}

// What was launched is still done.
inline CUresult GraphExecDestroy(CUgraphExec handle) {
  Call call;
  if (call.failed()) return call.status();
  return call.machine().graphs.execs.erase(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

inline CUresult GraphLaunch(CUgraphExec handle, CUstream s) {
  if (checking()) make_watched(handle);
  Call call(SUBMISSION_COST);
  Stream *stream = work_stream(call, s);
  if (!stream) return call.status();
  GraphExec *exec = call.machine().graphs.find(handle);
  if (!exec) return CUDA_ERROR_INVALID_VALUE;
  if (stream->capture) {
    return refuse(call, *stream->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                  "A graph was launched " + under_way(*stream->capture) +
                      "; virtual GPUs do not put graphs into graphs. Launch it before or after the capture.");
  }
  return call.settle(*stream->context, call.machine().submit_graph(*stream, *exec));
}

// With `nodes` null only the count is told; else up to *count handles, those missing are null.
inline CUresult GraphGetNodes(CUgraph handle, CUgraphNode *nodes, std::size_t *count) {
  Call call;
  if (call.failed()) return call.status();
  const Graph *graph = call.machine().graphs.find(handle);
  if (!graph || !count) return CUDA_ERROR_INVALID_VALUE;
  const std::size_t room = *count;
  if (!nodes) {
    *count = graph->nodes.size();
    return CUDA_SUCCESS;
  }
  for (std::size_t i = 0; i < room; ++i) {
    nodes[i] = i < graph->nodes.size() ? reinterpret_cast<CUgraphNode>(graph->nodes[i].get()) : nullptr;
  }
  *count = std::min(room, graph->nodes.size());
  return CUDA_SUCCESS;
}

inline CUresult GraphGetEdges(CUgraph handle, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *data,
                              std::size_t *count) {
  Call call;
  if (call.failed()) return call.status();
  const Graph *graph = call.machine().graphs.find(handle);
  if (!graph || !count || !from != !to) return CUDA_ERROR_INVALID_VALUE;
  const std::size_t room = *count;
  std::size_t edges = 0;
  for (const auto &node : graph->nodes) {
    for (GraphNode *earlier : node->dependencies) {
      if (from && edges < room) {
        from[edges] = reinterpret_cast<CUgraphNode>(earlier);
        to[edges] = reinterpret_cast<CUgraphNode>(node.get());
        if (data) data[edges] = {};
      }
      ++edges;
    }
  }
  for (std::size_t i = edges; from && i < room; ++i) from[i] = to[i] = nullptr;
  *count = from ? std::min(room, edges) : edges;
  return CUDA_SUCCESS;
}

// The node of a handle, or the call fails.
inline const GraphNode *graph_node(Call &call, CUgraphNode handle) {
  if (call.failed()) return nullptr;
  const GraphNode *node = call.machine().graphs.find(handle);
  if (!node) call.fail(CUDA_ERROR_INVALID_VALUE);
  return node;
}

inline CUresult GraphNodeGetDependencies(CUgraphNode handle, CUgraphNode *found, CUgraphEdgeData *data,
                                         std::size_t *count) {
  Call call;
  const GraphNode *node = graph_node(call, handle);
  if (!node) return call.status();
  if (!count) return CUDA_ERROR_INVALID_VALUE;
  const std::size_t room = found ? *count : 0;
  for (std::size_t i = 0; i < room; ++i) {
    if (data) data[i] = {};
    found[i] = i < node->dependencies.size() ? reinterpret_cast<CUgraphNode>(node->dependencies[i]) : nullptr;
  }
  *count = found ? std::min(room, node->dependencies.size()) : node->dependencies.size();
  return CUDA_SUCCESS;
}

inline CUresult GraphNodeGetType(CUgraphNode handle, int *type) {
  Call call;
  const GraphNode *node = graph_node(call, handle);
  if (!node) return call.status();
  *type = node->work.type;
  return CUDA_SUCCESS;
}

// The parameters' values are not told.
inline CUresult GraphKernelNodeGetParams(CUgraphNode handle, CUkernelNodeParams *parameters) {
  Call call;
  const GraphNode *node = graph_node(call, handle);
  if (!node) return call.status();
  if (node->work.type != NODE_KERNEL || !parameters) return CUDA_ERROR_INVALID_VALUE;
  const WorkDescription &w = node->work;
  *parameters = {w.function, w.grid[0], w.grid[1], w.grid[2], w.block[0], w.block[1], w.block[2],
                 w.dynamic_shared, nullptr, nullptr, nullptr, reinterpret_cast<CUcontext>(node->context)};
  return CUDA_SUCCESS;
}

// The kernel may be another one of the same device. Launches under way keep what they were given.
inline CUresult GraphExecKernelNodeSetParams(CUgraphExec handle, CUgraphNode node_handle,
                                             const CUkernelNodeParams *p) {
  Call call;
  const GraphNode *node = graph_node(call, node_handle);
  if (!node) return call.status();
  GraphExec *exec = call.machine().graphs.find(handle);
  if (!exec || !p || node->work.type != NODE_KERNEL) return CUDA_ERROR_INVALID_VALUE;
  const Function *f = function_of(call, p->func);
  if (!f) return call.status();
  const auto step = std::find_if(exec->steps.begin(), exec->steps.end(),
                                 [node](const GraphExec::Step &s) { return s.task && s.node == node->id; });
  if (step == exec->steps.end() || f->context != step->context) return CUDA_ERROR_INVALID_VALUE;
  const LaunchShape shape{{p->gridDimX, p->gridDimY, p->gridDimZ},
                          {p->blockDimX, p->blockDimY, p->blockDimZ}, p->sharedMemBytes};
  std::string why;
  const CUresult shaped = check_shape(*f, shape, why);
  if (shaped != CUDA_SUCCESS) return call.fail(shaped, std::move(why));
  std::vector<char> packed;
  if (!pack_parameters(f->info(), p->kernelParams, p->extra, packed)) return CUDA_ERROR_INVALID_VALUE;
  auto task = std::make_shared<KernelTask>(p->func, f->code, shape, std::move(packed));
  task->set_place(f->context->device->model, step->partition.get());
  task->set_watched(f->watched);
  step->task = std::move(task);
  return CUDA_SUCCESS;
}

inline CUresult GraphHostNodeGetParams(CUgraphNode handle, CUhostNodeParams *parameters) {
  Call call;
  const GraphNode *node = graph_node(call, handle);
  if (!node) return call.status();
  if (node->work.type != NODE_HOST || !parameters) return CUDA_ERROR_INVALID_VALUE;
  *parameters = {node->work.host_function, node->work.host_data};
  return CUDA_SUCCESS;
}

inline CUresult event_of(CUgraphNode handle, NodeType type, CUevent *event) {
  Call call;
  const GraphNode *node = graph_node(call, handle);
  if (!node) return call.status();
  if (node->work.type != type || !event) return CUDA_ERROR_INVALID_VALUE;
  *event = node->event;
  return CUDA_SUCCESS;
}

inline CUresult GraphEventRecordNodeGetEvent(CUgraphNode node, CUevent *event) {
  return event_of(node, NODE_EVENT_RECORD, event);
}
inline CUresult GraphEventWaitNodeGetEvent(CUgraphNode node, CUevent *event) {
  return event_of(node, NODE_WAIT_EVENT, event);
}

inline CUresult GraphDebugDotPrint(CUgraph handle, const char *path, unsigned) {
  Call call;
  if (call.failed()) return call.status();
  const Graph *graph = call.machine().graphs.find(handle);
  if (!graph || !path) return CUDA_ERROR_INVALID_VALUE;
  if (write_dot(*graph, path)) return CUDA_SUCCESS;
  return call.fail(CUDA_ERROR_INVALID_VALUE, std::string("The file ") + path + " cannot be written.");
}

inline CUresult FuncGetName(const char **name, CUfunction handle) {
  Call call;
  if (call.failed()) return call.status();
  auto found = call.machine().functions.find(handle);
  if (found == call.machine().functions.end()) return CUDA_ERROR_INVALID_HANDLE;
  *name = found->second->info().name;
  return CUDA_SUCCESS;
}

inline CUresult GraphGetId(CUgraph handle, unsigned *id) {
  Call call;
  if (call.failed()) return call.status();
  const Graph *graph = call.machine().graphs.find(handle);
  if (!graph || !id) return CUDA_ERROR_INVALID_VALUE;
  *id = graph->id;
  return CUDA_SUCCESS;
}

inline CUresult GraphExecGetId(CUgraphExec handle, unsigned *id) {
  Call call;
  if (call.failed()) return call.status();
  const GraphExec *exec = call.machine().graphs.find(handle);
  if (!exec || !id) return CUDA_ERROR_INVALID_VALUE;
  *id = exec->id;
  return CUDA_SUCCESS;
}

inline CUresult GraphNodeGetLocalId(CUgraphNode handle, unsigned *id) {
  Call call;
  const GraphNode *node = graph_node(call, handle);
  if (!node) return call.status();
  *id = node->id;
  return CUDA_SUCCESS;
}

inline CUresult GraphNodeGetToolsId(CUgraphNode handle, unsigned long long *id) {
  Call call;
  const GraphNode *node = graph_node(call, handle);
  if (!node) return call.status();
  *id = (static_cast<unsigned long long>(node->graph->id) << 32) | node->id;
  return CUDA_SUCCESS;
}

}  // namespace flambeau::vgpu::entries
