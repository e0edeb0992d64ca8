// SPDX-License-Identifier: Apache-2.0
// Collectives as work. The ranks of a communicator meet in memory that all of them map, whether they
// are threads or processes: each lays out its input, waits until all have, and takes what it needs. A
// rank that never comes, or has gone, fails those who wait for it; nobody waits for ever.
#pragma once
#include <sys/mman.h>

#include <map>

#include "checks/ranges.hpp"
#include "ipc/shared_event.hpp"
#include "memory/transfer.hpp"

namespace flambeau::vgpu {

enum RankState : std::int32_t { RANK_ABSENT = 0, RANK_PRESENT = 1, RANK_LEFT = 2, RANK_BROKEN = 3 };

// What a rank tells the others. Python keeps what it lays out in the rest of the slot's SLOT_BYTES.
struct MeetingSlot {
  std::atomic<std::uint64_t> arrived, departed;   // collectives laid out, and taken from all others
  std::atomic<std::int32_t> process, state;
};
constexpr std::uint64_t SLOT_BYTES = 512;
static_assert(sizeof(MeetingSlot) == 24, "Python writes behind the first 64 bytes of a slot");

// The memory, mapped for as long as somebody here may look into it.
class Meeting {
 public:
  Meeting(void *at, std::size_t bytes) : at_(at), bytes_(bytes) {}
  ~Meeting() { munmap(at_, bytes_); }
  Meeting(const Meeting &) = delete;
  Meeting &operator=(const Meeting &) = delete;
  std::uint64_t address() const { return reinterpret_cast<std::uint64_t>(at_); }
  MeetingSlot &slot(int rank) const {
    return *reinterpret_cast<MeetingSlot *>(address() + SLOT_BYTES * static_cast<std::uint64_t>(rank));
  }

 private:
  void *at_;
  std::size_t bytes_;
};

// Meetings by their addresses.
struct MeetingBook {
  std::mutex mutex;
  std::map<std::uint64_t, std::shared_ptr<Meeting>> meetings;
};

inline MeetingBook &meeting_book() {
  static MeetingBook *book = new MeetingBook();   // tasks may outlive exit()
  return *book;
}

// Map the memory of a file, or memory of this process for file -1; 0 if the system refuses.
inline std::uint64_t open_meeting(int file, std::size_t bytes) {
  const int flags = MAP_SHARED | (file < 0 ? MAP_ANONYMOUS : 0);
  void *at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, file, 0);
  if (at == MAP_FAILED) return 0;
  auto meeting = std::make_shared<Meeting>(at, bytes);
  std::lock_guard<std::mutex> guard(meeting_book().mutex);
  const std::uint64_t address = meeting->address();
  meeting_book().meetings[address] = std::move(meeting);
  return address;
}

inline void close_meeting(std::uint64_t address) {
  std::shared_ptr<Meeting> closed;   // unmapped when the lock is free again
  std::lock_guard<std::mutex> guard(meeting_book().mutex);
  auto found = meeting_book().meetings.find(address);
  if (found == meeting_book().meetings.end()) return;
  closed = std::move(found->second);
  meeting_book().meetings.erase(found);
}

enum MeetingTrouble : int { NO_TROUBLE = 0, RANK_DIED = 1, RANK_GAVE_UP = 2, TIME_OUT = 3, RANK_GONE = 4 };

struct MeetingArgs {
  std::uint64_t communicator;      // Python's number for it
  std::uint64_t meeting;           // address of its memory
  int ranks, rank;
  double patience;                 // seconds of wall time
  int kind, dtype, operation, root;
  CUdeviceptr send, receive;
  std::uint64_t count, send_bytes, receive_bytes;
  const char *name;                // lives for ever
};

// One step of a collective: laying out (0) or taking (1). The answer to a failure is text.
struct MeetingStep {
  const MeetingArgs *args;
  int step, trouble, troubled_rank;
  Nanoseconds start;
};
using MeetingFunction = CUresult (*)(const MeetingStep *step, double *duration, char *message,
                                     std::size_t length);

inline MeetingFunction &meeting_function() {
  static MeetingFunction function = nullptr;
  return function;
}

class MeetingTask final : public Task {
 public:
  MeetingTask(const MeetingArgs &args, std::shared_ptr<Meeting> meeting)
      : args_(args), meeting_(std::move(meeting)) {}
  // Dropped between its steps, with its device: the others must not wait for it.
  ~MeetingTask() override {
    if (waiting_ || laid_out_) give_up();
  }
  bool compiled() const override { return false; }
  bool brief() const override { return false; }
  Engine engine() const override { return Engine::Link; }
  void describe(WorkDescription &work) const override { work.name = args_.name; }

  bool may_start() override {
    const auto now = std::chrono::steady_clock::now();
    if (!waiting_) {
      waiting_ = true;
      since_ = looked_ = now;
    }
    const int late = first_late();
    if (late < 0) return true;
    find_trouble(late, now);
    return trouble_ != NO_TROUBLE;
  }

  void run(Machine &machine, Context &, Nanoseconds start, Report &report) override {
    const int step = laid_out_ ? 1 : 0;
    if (trouble_ == NO_TROUBLE && !(step ? may_take(machine, report) : may_lay_out(machine, report))) {
      give_up();
      return;
    }
    const MeetingStep now{&args_, step, trouble_, troubled_rank_, start};
    char message[768] = "";
    double duration = 0;
    const CUresult status = meeting_function()(&now, &duration, message, sizeof message);
    if (status != CUDA_SUCCESS) {
      report.status = status;
      report.fault = message;
      give_up();
      return;
    }
    waiting_ = false;
    if (step == 0) {
      laid_out_ = report.again = true;
      ++slot(args_.rank).arrived;
    } else {
      laid_out_ = false;
      report.duration = static_cast<Nanoseconds>(duration);
      ++slot(args_.rank).departed;
    }
  }

 private:
  MeetingSlot &slot(int rank) const { return meeting_->slot(rank); }

  // The first rank that holds this step up, or -1: what is laid out next takes the place of what all
  // have taken; what is taken, all have laid out.
  int first_late() const {
    const std::uint64_t turn = slot(args_.rank).arrived;
    for (int i = 0; i < args_.ranks; ++i) {
      const MeetingSlot &other = slot(i);
      if ((laid_out_ ? other.arrived : other.departed) < turn) return i;
    }
    return -1;
  }

  void find_trouble(int late, std::chrono::steady_clock::time_point now) {
    const std::int32_t state = slot(late).state, process = slot(late).process;
    int found = state == RANK_BROKEN ? RANK_GAVE_UP : state == RANK_LEFT ? RANK_GONE : NO_TROUBLE;
    if (!found && now - looked_ > std::chrono::milliseconds(50)) {
      looked_ = now;
      if (process > 0 && process != getpid() && process_gone(process)) found = RANK_DIED;
    }
    if (!found && std::chrono::duration<double>(now - since_).count() > args_.patience) found = TIME_OUT;
    trouble_ = found;
    troubled_rank_ = late;
  }

  bool may_lay_out(Machine &machine, Report &report) {
    if (!allowed(machine, "read", args_.send, args_.send_bytes, report)) return false;
    if (ticket && checking()) RangeChecks(ticket, args_.name).read(args_.send, args_.send_bytes);
    return true;
  }
  bool may_take(Machine &machine, Report &report) {
    if (!allowed(machine, "write", args_.receive, args_.receive_bytes, report) ||
        !hold(args_.receive, args_.receive_bytes, report)) {
      return false;
    }
    if (ticket && checking()) RangeChecks(ticket, args_.name).write(args_.receive, args_.receive_bytes);
    return true;
  }
  bool allowed(Machine &machine, const char *access, CUdeviceptr at, std::uint64_t bytes, Report &report) {
    std::lock_guard<std::mutex> guard(machine.mutex);
    if (bytes == 0 || holds(place_of(machine, at), at, bytes)) return true;
    report.status = CUDA_ERROR_ILLEGAL_ADDRESS;
    report.fault = describe_bad_range(machine, (std::string("A collective's ") + access).c_str(), at, bytes);
    return false;
  }

  void give_up() {
    slot(args_.rank).state = RANK_BROKEN;
    waiting_ = laid_out_ = false;
    trouble_ = NO_TROUBLE;
  }

  MeetingArgs args_;
  std::shared_ptr<Meeting> meeting_;
  bool waiting_ = false, laid_out_ = false;
  int trouble_ = NO_TROUBLE, troubled_rank_ = -1;
  std::chrono::steady_clock::time_point since_, looked_;
};

namespace entries {

// Like other library calls it never waits, not even where launches do: the other ranks' parts may
// only come when this call has returned.
inline CUresult join_meeting(const MeetingArgs &args, CUstream s) {
  Call call(SUBMISSION_COST);
  Stream *stream = work_stream(call, s);
  if (!stream) return call.status();
  std::shared_ptr<Meeting> meeting;
  {
    std::lock_guard<std::mutex> guard(meeting_book().mutex);
    const auto found = meeting_book().meetings.find(args.meeting);
    if (found == meeting_book().meetings.end()) return CUDA_ERROR_INVALID_HANDLE;
    meeting = found->second;
  }
  call.machine().submit(*stream, std::make_unique<MeetingTask>(args, std::move(meeting)));
  return CUDA_SUCCESS;
}

}  // namespace entries
}  // namespace flambeau::vgpu
