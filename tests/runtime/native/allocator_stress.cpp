// SPDX-License-Identifier: Apache-2.0
// Four threads use both caching allocators, private pools, captures and histories over a driver that
// fails now and then and whose events take a while. Built with sanitizers; ends with status 0 if the books are in balance.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <thread>

#include "flambeau/runtime/device_allocator.hpp"
#include "flambeau/runtime/host_allocator.hpp"

using namespace flambeau;

namespace {

constexpr std::int64_t CAPACITY = 600 << 20;
const CUcontext CONTEXT = reinterpret_cast<CUcontext>(0x10);

std::atomic<CUdeviceptr> next_address{CUdeviceptr{1} << 40};
std::atomic<std::int64_t> taken{0};
std::mutex segments_lock;
std::map<CUdeviceptr, std::size_t> segments;
thread_local CUcontext current_context;

void require(bool holds, const char *what) {
  if (holds) return;
  std::fprintf(stderr, "violated: %s\n", what);
  std::exit(1);
}

CUresult mem_alloc(CUdeviceptr *pointer, std::size_t bytes) {
  const auto size = static_cast<std::int64_t>(bytes);
  if (taken.fetch_add(size) + size > CAPACITY) {
    taken -= size;
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *pointer = next_address.fetch_add(bytes + SMALL_SEGMENT);
  std::lock_guard<std::mutex> guard(segments_lock);
  segments[*pointer] = bytes;
  return CUDA_SUCCESS;
}

CUresult mem_free(CUdeviceptr pointer) {
  std::this_thread::yield();
  std::lock_guard<std::mutex> guard(segments_lock);
  const auto found = segments.find(pointer);
  require(found != segments.end(), "only what was allocated is freed");
  taken -= static_cast<std::int64_t>(found->second);
  segments.erase(found);
  return CUDA_SUCCESS;
}

// Virtual memory: handles count against the capacity, mappings must not overlap.
std::atomic<CUmemHandle> next_handle{1};
std::map<CUmemHandle, std::size_t> physical;
std::map<CUdeviceptr, CUmemHandle> mapped;
std::map<CUdeviceptr, std::size_t> reserved;

CUresult mem_create(CUmemHandle *handle, std::size_t bytes, const CUmemAllocationProp *, unsigned long long) {
  static std::atomic<int> calls{0};
  const auto size = static_cast<std::int64_t>(bytes);
  if (++calls % 89 == 0 || taken.fetch_add(size) + size > CAPACITY) {
    if (calls % 89) taken -= size;
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  std::lock_guard<std::mutex> guard(segments_lock);
  physical[*handle = next_handle++] = bytes;
  return CUDA_SUCCESS;
}

CUresult mem_map(CUdeviceptr pointer, std::size_t bytes, std::size_t, CUmemHandle handle, unsigned long long) {
  std::lock_guard<std::mutex> guard(segments_lock);
  require(physical.count(handle) && physical[handle] == bytes, "what exists is mapped, as a whole");
  require(mapped.emplace(pointer, handle).second, "nothing is mapped twice");
  return CUDA_SUCCESS;
}

CUresult mem_unmap(CUdeviceptr pointer, std::size_t bytes) {
  std::this_thread::yield();
  std::lock_guard<std::mutex> guard(segments_lock);
  for (CUdeviceptr at = pointer; at < pointer + bytes;) {
    const auto found = mapped.find(at);
    require(found != mapped.end(), "only what is mapped is unmapped");
    at += physical[found->second];
    mapped.erase(found);
  }
  return CUDA_SUCCESS;
}

CUresult mem_release(CUmemHandle handle) {
  std::lock_guard<std::mutex> guard(segments_lock);
  require(physical.count(handle), "a handle is released once");
  taken -= static_cast<std::int64_t>(physical[handle]);
  physical.erase(handle);
  return CUDA_SUCCESS;
}

CUresult mem_set_access(CUdeviceptr pointer, std::size_t, const CUmemAccessDesc *, std::size_t) {
  static std::atomic<int> calls{0};
  std::lock_guard<std::mutex> guard(segments_lock);
  require(mapped.count(pointer), "access is given to what is mapped");
  return ++calls % 101 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult mem_address_reserve(CUdeviceptr *pointer, std::size_t bytes, std::size_t, CUdeviceptr, unsigned long long) {
  *pointer = next_address.fetch_add(bytes + SMALL_SEGMENT);
  std::lock_guard<std::mutex> guard(segments_lock);
  reserved[*pointer] = bytes;
  return CUDA_SUCCESS;
}

CUresult mem_address_free(CUdeviceptr pointer, std::size_t bytes) {
  std::lock_guard<std::mutex> guard(segments_lock);
  require(reserved.count(pointer) && reserved[pointer] == bytes, "only whole ranges go back");
  const auto inside = mapped.lower_bound(pointer);
  require(inside == mapped.end() || inside->first >= pointer + bytes, "and only empty ones");
  reserved.erase(pointer);
  return CUDA_SUCCESS;
}

// An event is a countdown: so many queries until it has passed.
std::atomic<int> *countdown(CUevent event) { return reinterpret_cast<std::atomic<int> *>(event); }

CUresult event_create(CUevent *event, unsigned) {
  *event = reinterpret_cast<CUevent>(new std::atomic<int>(0));
  return CUDA_SUCCESS;
}

CUresult event_record(CUevent event, CUstream) {
  static std::atomic<int> calls{0};
  if (++calls % 97 == 0) return CUDA_ERROR_INVALID_HANDLE;
  countdown(event)->store(3);
  return CUDA_SUCCESS;
}

CUresult event_query(CUevent event) {
  if (countdown(event)->load() <= 0) return CUDA_SUCCESS;
  countdown(event)->fetch_sub(1);
  return CUDA_ERROR_NOT_READY;
}

DriverTable make_driver() {
  DriverTable driver;
  driver.MemAlloc = mem_alloc;
  driver.MemFree = mem_free;
  driver.MemCreate = mem_create;
  driver.MemMap = mem_map;
  driver.MemUnmap = mem_unmap;
  driver.MemRelease = mem_release;
  driver.MemSetAccess = mem_set_access;
  driver.MemAddressReserve = mem_address_reserve;
  driver.MemAddressFree = mem_address_free;
  driver.StreamSynchronize = [](CUstream) -> CUresult { return CUDA_SUCCESS; };
  driver.EventCreate = event_create;
  driver.EventRecord = event_record;
  driver.EventQuery = event_query;
  driver.EventSynchronize = [](CUevent event) -> CUresult {
    countdown(event)->store(0);
    return CUDA_SUCCESS;
  };
  driver.CtxGetCurrent = [](CUcontext *context) -> CUresult {
    *context = current_context;
    return CUDA_SUCCESS;
  };
  driver.CtxSetCurrent = [](CUcontext context) -> CUresult {
    current_context = context;
    return CUDA_SUCCESS;
  };
  driver.CtxSynchronize = []() -> CUresult { return CUDA_SUCCESS; };
  driver.ThreadExchangeStreamCaptureMode = [](int *) -> CUresult { return CUDA_SUCCESS; };
  driver.MemGetInfo = [](std::size_t *free, std::size_t *total) -> CUresult {
    *total = CAPACITY;
    *free = static_cast<std::size_t>(std::max<std::int64_t>(0, CAPACITY - taken));
    return CUDA_SUCCESS;
  };
  driver.MemHostAlloc = [](void **pointer, std::size_t bytes, unsigned) -> CUresult {
    *pointer = std::malloc(bytes);
    return CUDA_SUCCESS;
  };
  driver.MemFreeHost = [](void *pointer) -> CUresult {
    std::free(pointer);
    return CUDA_SUCCESS;
  };
  return driver;
}

CUstream stream(unsigned number) {
  return reinterpret_cast<CUstream>(static_cast<std::uintptr_t>(number));
}

void check_snapshot(DeviceAllocator &allocator) {
  for (const SegmentInfo &segment : allocator.snapshot()) {
    CUdeviceptr at = segment.address;
    bool free_before = false;
    for (const BlockInfo &block : segment.blocks) {
      require(block.address == at, "blocks lie end to end");
      require(!(free_before && block.state == BlockState::free), "free neighbours are merged");
      free_before = block.state == BlockState::free;
      at += block.size;
    }
    require(at == segment.address + segment.size, "blocks fill their segment");
  }
}

int *thread_token() {
  static thread_local int token;
  return &token;
}

bool is_this_thread(void *context, CUstream) { return context == thread_token(); }

// A pool in which this thread allocates for a while, sometimes as a capture does.
class Routed {
 public:
  Routed(DeviceAllocator &device, PoolId id, bool capturing)
      : device_(device), id_(id), capturing_(capturing) {
    device_.retain_pool(id_, nullptr, id.second % 2, id.second % 3);
    require(device_.begin_route(id_, is_this_thread, thread_token(), capturing_), "a pool is there");
  }
  ~Routed() {
    require(device_.end_route(id_, thread_token(), capturing_), "a route ends once");
    require(device_.drop_pool(id_), "a user leaves once");
  }

 private:
  DeviceAllocator &device_;
  PoolId id_;
  bool capturing_;
};

void look(DeviceAllocator &device, unsigned choice) {
  if (choice == 0) device.start_history(StackUse::all, 500, 2, false);
  if (choice == 1) device.stop_history();
  if (choice == 2) require(device.trace().size() <= 500, "a history is bounded");
  if (choice == 3) device.note_snapshot(), device.pool_stats(), device.balance();
}

void work(DeviceAllocator &device, PinnedAllocator &pinned, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<Storage *> held;
  const auto drop_all = [&] {
    for (Storage *storage : held) storage->drop();
    held.clear();
  };
  current_context = CONTEXT;
  std::unique_ptr<Routed> route;
  for (int step = 0; step < 20000; ++step) {
    const unsigned choice = random() % 100;
    if (step % 50 == 0) {
      route.reset();
      const PoolId pool(0, 1 + random() % 5);
      if (random() % 2) route = std::make_unique<Routed>(device, pool, random() % 4 == 0);
      look(device, random() % 8);
    }
    if (choice < 50) {
      const std::size_t most[] = {4096, 3 << 20, 60 << 20};
      const std::size_t bytes = 1 + random() % most[random() % 3];
      const CUstream on = stream(random() % 3);
      AllocationFailure failure;
      Block *block = device.allocate_cached(bytes, on);
      if (!block) block = device.allocate(bytes, on, nullptr, &failure);
      if (!block) {
        require(failure.status == CUDA_ERROR_OUT_OF_MEMORY, "only memory runs out");
        drop_all();
        continue;
      }
      if (random() % 4 == 0) device.record_use(block, {CONTEXT, stream(random() % 4)});
      held.push_back(block);
    } else if (choice < 90) {
      if (held.empty()) continue;
      std::swap(held[random() % held.size()], held.back());
      held.back()->drop();
      held.pop_back();
    } else if (choice < 98) {
      CUresult status;
      HostBlock *block = pinned.allocate(1 + random() % 10000, nullptr, &status);
      if (random() % 2) pinned.record_use(block, {CONTEXT, stream(random() % 3)});
      block->drop();
    } else if (choice == 98) {
      check_snapshot(device);
    } else if (random() % 10 == 0) {
      require(device.empty_cache() == CUDA_SUCCESS, "the cache can be emptied");
      require(pinned.empty_cache() == CUDA_SUCCESS, "the pinned cache can be emptied");
    }
    if (held.size() > 60) drop_all();
  }
  route.reset();
  drop_all();
}

}  // namespace

int main(int argc, char **argv) {
  const bool expanding = argc > 1 && std::string(argv[1]) == "expanding";
  const DriverTable driver = make_driver();
  AllocatorSettings settings;
  settings.garbage_threshold = 0.7;
  if (argc > 1 && !expanding) settings.max_split_size = 40 << 20;
  settings.expandable = expanding;
  DeviceAllocator device(0, &driver, &settings);
  HostSettings host_settings;
  PinnedAllocator pinned(&driver, &host_settings);
  device.set_context(CONTEXT);
  device.set_total(CAPACITY);
  if (expanding) device.allow_expanding({});
  device.set_limit(CAPACITY);
  pinned.watch(argc > 1);
  std::vector<std::thread> threads;
  for (unsigned seed = 1; seed <= 4; ++seed)
    threads.emplace_back([&device, &pinned, seed] { work(device, pinned, seed); });
  for (std::thread &thread : threads) thread.join();
  pinned.watch(false);
  current_context = CONTEXT;
  require(device.empty_cache() == CUDA_SUCCESS, "the cache can be emptied");
  for (const auto &[id, reserved] : device.pool_stats())
    require(reserved.of[ALL_POOLS].current == 0, "pools give everything back");
  DeviceStats stats = device.stats();
  stats.each([](Stat &stat) { require(stat.current == 0, "every counter comes back to zero"); });
  require(expanding || stats.device_allocs == stats.device_frees, "every segment goes back");
  require(segments.empty() && taken == 0, "the driver has everything back");
  require(physical.empty() && mapped.empty() && reserved.empty(), "addresses and pages too");
  require(stats.alloc_retries > 0, "memory ran short at times");
}
