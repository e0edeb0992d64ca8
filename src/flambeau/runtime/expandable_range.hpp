// SPDX-License-Identifier: Apache-2.0
// Segments that grow: a range of addresses as large as the device and more, of which as many pages
// have physical memory as are needed. This is the driver's side; what the pages hold is in the books.
#pragma once
#include <algorithm>
#include <vector>

#include "pool.hpp"

namespace flambeau {

struct ExpandableRange {
  CUdeviceptr address = 0;
  std::size_t size = 0;  // of addresses
  std::size_t page = 0;
  CUstream stream = nullptr;
  std::int64_t serial = 0;
  PoolKind kind = SMALL_POOL;
  Pool *pool = nullptr;
  std::vector<CUmemHandle> handles;  // by page; 0: nothing is mapped. As long as the last that was

  CUdeviceptr end() const { return address + size; }
  CUdeviceptr address_of(std::size_t index) const { return address + index * page; }
  CUmemHandle handle_of(std::size_t index) const { return index < handles.size() ? handles[index] : 0; }
};

// Pages of a range, one after another.
struct PageRun {
  std::size_t first, count;
};

// Maps and unmaps. All methods make driver calls and are called without the allocator's lock, by one
// thread at a time.
class PageMapper {
 public:
  PageMapper(const DriverTable *driver, int device) : driver_(driver), device_(device) {
    access_.push_back({{1, device}, 3});  // CU_MEM_ACCESS_FLAGS_PROT_READWRITE
  }

  // Another device may use what is mapped from now on.
  void add_peer(int device) { access_.push_back({{1, device}, 3}); }

  CUresult reserve(ExpandableRange &range) {
    return driver_->MemAddressReserve(&range.address, range.size, 0, 0, 0);
  }
  CUresult unreserve(const ExpandableRange &range) {
    return driver_->MemAddressFree(range.address, range.size);
  }

  // All of it or nothing.
  CUresult map(ExpandableRange &range, PageRun run) {
    const CUmemAllocationProp prop = {1, 1, {1, device_}, nullptr, {}};
    CUresult status = CUDA_SUCCESS;
    std::vector<CUmemHandle> made;
    while (status == CUDA_SUCCESS && made.size() < run.count) {
      CUmemHandle handle = 0;
      status = driver_->MemCreate(&handle, range.page, &prop, 0);
      if (status != CUDA_SUCCESS) break;
      const CUdeviceptr at = range.address_of(run.first + made.size());
      status = driver_->MemMap(at, range.page, 0, handle, 0);
      if (status == CUDA_SUCCESS) made.push_back(handle);
      else driver_->MemRelease(handle);
    }
    if (status == CUDA_SUCCESS)
      status = driver_->MemSetAccess(range.address_of(run.first), run.count * range.page,
                                     access_.data(), access_.size());
    if (status != CUDA_SUCCESS) {
      if (!made.empty()) driver_->MemUnmap(range.address_of(run.first), made.size() * range.page);
      for (const CUmemHandle handle : made) driver_->MemRelease(handle);
      return status;
    }
    if (range.handles.size() < run.first + run.count) range.handles.resize(run.first + run.count);
    std::copy(made.begin(), made.end(), range.handles.begin() + static_cast<std::ptrdiff_t>(run.first));
    return CUDA_SUCCESS;
  }

  // Nothing may use the pages any more. If this fails they are mapped as before.
  CUresult unmap(ExpandableRange &range, PageRun run) {
    const CUresult status = driver_->MemUnmap(range.address_of(run.first), run.count * range.page);
    if (status != CUDA_SUCCESS) return status;
    const auto first = range.handles.begin() + static_cast<std::ptrdiff_t>(run.first);
    const auto last = first + static_cast<std::ptrdiff_t>(run.count);
    gone_.insert(gone_.end(), first, last);
    std::fill(first, last, 0);
    while (!range.handles.empty() && !range.handles.back()) range.handles.pop_back();
    return CUDA_SUCCESS;
  }

  // Release the memory of unmapped pages; what fails is tried again the next time.
  CUresult release_gone() {
    CUresult result = CUDA_SUCCESS;
    std::vector<CUmemHandle> kept;
    for (const CUmemHandle handle : gone_) {
      const CUresult status = driver_->MemRelease(handle);
      if (status != CUDA_SUCCESS) kept.push_back(handle);
      if (result == CUDA_SUCCESS) result = status;
    }
    gone_.swap(kept);
    return result;
  }

 private:
  const DriverTable *const driver_;
  const int device_;
  std::vector<CUmemAccessDesc> access_;
  std::vector<CUmemHandle> gone_;  // of pages that are unmapped
};

}  // namespace flambeau
