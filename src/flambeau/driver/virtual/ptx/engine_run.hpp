// SPDX-License-Identifier: Apache-2.0
// Running grids: worker threads take blocks in order from one counter.
#pragma once
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "engine_block.hpp"

namespace flambeau::ptx {

// Kernels without yields: compiled code loops over the blocks and threads of a chunk.
inline void run_chunks(Job &job) {
  static thread_local Buffer shared, sites, local;
  Context context{};
  prepare(context, job, shared, sites);
  const KernelCode &code = *job.launch->code;
  context.local = reinterpret_cast<std::uint64_t>(local.reserve(code.local_bytes + 16));
  while (!job.stop.load(std::memory_order_relaxed)) {
    const std::uint64_t first = job.next.fetch_add(job.chunk);
    if (first >= job.blocks) break;
    if (code.run(&context, first, std::min(first + job.chunk, job.blocks)) != 0) break;
  }
  const std::uint64_t cycles = context.clock_end - context.clock_start;
  std::uint64_t seen = job.clock_cycles.load();
  while (seen < cycles && !job.clock_cycles.compare_exchange_weak(seen, cycles)) {}
}

// Kernels with yields. A block whose threads only poll memory is set aside and others go on, so
// that blocks which wait for each other make progress.
class BlockRunner {
 public:
  explicit BlockRunner(Job &job) : job_(job) {}
  ~BlockRunner() {
    for (auto &block : spare_)
      if (kept().size() < KEPT_BLOCKS && block->bytes() < KEPT_BYTES)
        kept().push_back(std::move(block));
  }

  void run() {
    int fruitless = 0;
    while (!job_.stop.load(std::memory_order_relaxed)) {
      std::unique_ptr<Block> block;
      if (waiting_.empty() || fruitless > PATIENCE) {
        block = start();
        fruitless = 0;
      }
      if (!block) {
        if (waiting_.empty()) break;
        block = std::move(waiting_.front());
        waiting_.pop_front();
      }
      const Block::Progress progress = block->advance();
      if (progress == Block::Progress::spinning) {
        waiting_.push_back(std::move(block));
        if (++fruitless > 1) rest();
        continue;
      }
      fruitless = 0;
      resting_ = false;
      note_clock(*block);
      if (progress == Block::Progress::fault) break;
      spare_.push_back(std::move(block));
    }
  }

 private:
  static constexpr int PATIENCE = 8;  // turns of polling before another block is started
  static constexpr auto STALL = std::chrono::milliseconds(2);  // of polling before the host is told
  static constexpr std::size_t KEPT_BLOCKS = 2, KEPT_BYTES = 16 << 20;

  // Nothing but polling goes on here: let other threads work, in the end for longer.
  void rest() {
    const Launch &launch = *job_.launch;
    const auto now = std::chrono::steady_clock::now();
    if (!resting_) since_ = now;
    resting_ = true;
    if (launch.cancelled && launch.cancelled->load(std::memory_order_relaxed)) job_.stop = true;
    if (now - since_ < STALL) {
      std::this_thread::yield();
    } else if (launch.stalled) {
      launch.stalled(launch.host);
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  }

  // Blocks of earlier grids, whose memory need not be asked for and cleared again.
  static std::vector<std::unique_ptr<Block>> &kept() {
    static thread_local std::vector<std::unique_ptr<Block>> blocks;
    return blocks;
  }

  std::unique_ptr<Block> start() {
    const std::uint64_t index = job_.next.fetch_add(1);
    if (index >= job_.blocks) return nullptr;
    std::unique_ptr<Block> block;
    if (!spare_.empty()) {
      block = std::move(spare_.back());
      spare_.pop_back();
    } else {
      if (kept().empty()) {
        block = std::make_unique<Block>();
      } else {
        block = std::move(kept().back());
        kept().pop_back();
      }
      block->prepare_for(job_);
    }
    block->begin(index);
    return block;
  }

  void note_clock(const Block &block) {
    const std::uint64_t cycles = block.clock_end() - job_.launch->clock_start;
    std::uint64_t seen = job_.clock_cycles.load();
    while (seen < cycles && !job_.clock_cycles.compare_exchange_weak(seen, cycles)) {}
  }

  Job &job_;
  bool resting_ = false;
  std::chrono::steady_clock::time_point since_;
  std::deque<std::unique_ptr<Block>> waiting_;
  std::vector<std::unique_ptr<Block>> spare_;
};

inline void work(Job &job) {
  if (job.launch->code->run) run_chunks(job);
  else BlockRunner(job).run();
}

// Threads that stay. They are never joined: at exit they sleep, and a forked child starts anew.
class Pool {
 public:
  static Pool &instance() {
    static std::mutex guard;
    static Pool *pool = nullptr;
    static pid_t owner = 0;
    std::lock_guard<std::mutex> lock(guard);
    if (owner != getpid()) {
      pool = new Pool;
      owner = getpid();
    }
    return *pool;
  }

  // Work on a job with `helpers` threads beside the caller's, as many as are free by then.
  void execute(Job &job, int helpers) {
    std::unique_lock<std::mutex> busy(one_grid_, std::try_to_lock);
    if (!busy.owns_lock()) return work(job);
    {
      std::lock_guard<std::mutex> lock(lock_);
      for (; threads_ < helpers; ++threads_) std::thread([this] { serve(); }).detach();
      job_ = &job;
      wanted_ = helpers;
    }
    wake_.notify_all();
    work(job);
    std::unique_lock<std::mutex> lock(lock_);
    wanted_ = 0;
    idle_.wait(lock, [this] { return running_ == 0; });
    job_ = nullptr;
  }

 private:
  void serve() {
    std::unique_lock<std::mutex> lock(lock_);
    for (;;) {
      wake_.wait(lock, [this] { return wanted_ > 0; });
      --wanted_;
      ++running_;
      Job &job = *job_;
      lock.unlock();
      work(job);
      lock.lock();
      if (--running_ == 0) idle_.notify_all();
    }
  }

  std::mutex one_grid_, lock_;
  std::condition_variable wake_, idle_;
  Job *job_ = nullptr;
  int threads_ = 0, wanted_ = 0, running_ = 0;
};

constexpr double WORTH_SHARING = 100'000;  // operations below which waking a thread costs more

inline void run(const Launch &launch, Outcome &outcome) {
  outcome = Outcome{};
  const KernelCode &code = *launch.code;
  Job job;
  job.launch = &launch;
  job.outcome = &outcome;
  job.blocks = std::uint64_t(launch.grid[0]) * launch.grid[1] * launch.grid[2];
  job.threads = launch.block[0] * launch.block[1] * launch.block[2];
  const double threads = double(job.blocks) * job.threads;
  const double operations = threads * code.info.operations_per_thread;
  int workers = std::max(1, launch.workers);
  if (operations < WORTH_SHARING || launch.watcher) workers = 1;
  workers = static_cast<int>(std::min<std::uint64_t>(workers, job.blocks));
  job.chunk = workers > 1 ? std::clamp<std::uint64_t>(job.blocks / (workers * 8), 1, 4096)
                          : std::clamp<std::uint64_t>(job.blocks / 8, 1, 4096);
  if (job.threads != 0 && job.blocks != 0) {
    if (workers > 1) Pool::instance().execute(job, workers - 1);
    else work(job);
  }
  outcome.clock_cycles = job.clock_cycles.load();
  outcome.global_bytes = threads * code.info.global_bytes_per_thread;
  outcome.operations = operations;
}

inline const KernelInfo &info(const KernelCode *code) { return code->info; }

}  // namespace flambeau::ptx
