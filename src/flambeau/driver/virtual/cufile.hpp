// SPDX-License-Identifier: Apache-2.0
// Reads of files into device memory and writes of device memory to files, as cuFile does them.
#pragma once
#include <unistd.h>

#include "entries/call.hpp"
#include "memory/transfer.hpp"

namespace flambeau::vgpu {

constexpr double STORAGE_BANDWIDTH = 7e9;   // bytes per second: a fast solid-state disk

struct FileTransfer {
  int file;
  bool writes;                   // to the file
  CUdeviceptr address;
  std::uint64_t bytes, offset;   // in the file
};

struct FileOutcome {
  std::uint64_t moved = 0;   // fewer than asked for where the file ends
  int error = 0;             // errno
};

class FileTask final : public Task {
 public:
  FileTask(const FileTransfer &transfer, std::shared_ptr<FileOutcome> outcome)
      : transfer_(transfer), outcome_(std::move(outcome)) {}
  Engine engine() const override { return transfer_.writes ? Engine::DeviceToHost : Engine::HostToDevice; }
  void describe(WorkDescription &work) const override { work.type = NODE_MEMCPY; }

  void run(Machine &, Context &, Nanoseconds, Report &report) override {
    const FileTransfer &t = transfer_;
    if (ticket && checking()) {
      RangeChecks checks(ticket, "a file transfer");
      if (t.writes) checks.read(t.address, t.bytes); else checks.write(t.address, t.bytes);
    }
    while (outcome_->moved < t.bytes) {
      void *at = reinterpret_cast<void *>(t.address + outcome_->moved);
      const std::uint64_t left = t.bytes - outcome_->moved;
      const auto place = static_cast<off_t>(t.offset + outcome_->moved);
      const ssize_t moved = t.writes ? pwrite(t.file, at, left, place) : pread(t.file, at, left, place);
      if (moved < 0 && errno == EINTR) continue;
      if (moved < 0) outcome_->error = errno;
      if (moved <= 0) break;
      outcome_->moved += static_cast<std::uint64_t>(moved);
    }
    report.duration = COPY_OVERHEAD + transfer_time(static_cast<double>(outcome_->moved), STORAGE_BANDWIDTH);
  }

 private:
  FileTransfer transfer_;
  std::shared_ptr<FileOutcome> outcome_;
};

namespace entries {

// Done when it returns. It is ordered with no stream.
inline CUresult transfer_file(const FileTransfer &transfer, FileOutcome &outcome) {
  Call call(SUBMISSION_COST);
  if (call.failed()) return call.status();
  Machine &machine = call.machine();
  const Place place = place_of(machine, transfer.address);
  if (!place.device || !holds(place, transfer.address, transfer.bytes)) {
    return call.fail(CUDA_ERROR_INVALID_VALUE,
                     describe_bad_range(machine, "A file transfer", transfer.address, transfer.bytes));
  }
  Report report;
  if (!transfer.writes && !hold(transfer.address, transfer.bytes, report)) {
    return call.fail(report.status, report.fault);
  }
  Context &context = place.device->context;
  Stream stream;
  stream.context = &context;
  stream.flags = STREAM_NON_BLOCKING;
  stream.name = "cuFile's own queue";
  const auto shared = std::make_shared<FileOutcome>();
  const CUresult status = call.wait(context, {machine.submit(stream, std::make_unique<FileTask>(transfer, shared))});
  outcome = *shared;
  return status;
}

}  // namespace entries
}  // namespace flambeau::vgpu
