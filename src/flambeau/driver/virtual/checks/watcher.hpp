// SPDX-License-Identifier: Apache-2.0
// The checks of one grid: each access of its threads is held against the ledger and the shadows.
#pragma once
#include <map>

#include "checker.hpp"
#include "flambeau/driver/virtual/ptx/engine.hpp"

namespace flambeau::vgpu {

class GridWatcher final : public ptx::Watcher {
 public:
  GridWatcher(Checker &checker, const TicketPtr &ticket, const ptx::KernelInfo &kernel)
      : checker_(checker), on_(checker.on.load()), ticket_(ticket), kernel_(kernel) {
    sites_.resize(kernel.places ? kernel.places->size() : 0);
  }
  ~GridWatcher() override {
    for (auto &entry : found_) checker_.findings.add(std::move(entry.second));
  }

  void *begin_block(void *previous, const ptx::WatchedBlock &place) override {
    BlockState *state = static_cast<BlockState *>(previous);
    if (!state) {
      blocks_.push_back(std::make_unique<BlockState>());
      state = blocks_.back().get();
    }
    state->place = place;
    state->shared_valid.assign(on_ & CHECK_INIT ? (place.shared_bytes + 63) / 64 : 0, 0);
    return state;
  }

  void access(void *block, const ptx::WatchedAccess &a) override {
    BlockState &state = *static_cast<BlockState *>(block);
    if (a.has(a.shared)) {
      if (on_ & CHECK_INIT) check_shared(state, a);
      return;
    }
    if (on_ & (CHECK_MEMORY | CHECK_INIT)) check_ledger(state, a);
  }
  void fence(void *, std::uint32_t) override {}
  void barrier(void *) override {}
  void warp_sync(void *, std::uint32_t, std::uint32_t) override {}

 private:
  struct BlockState {
    ptx::WatchedBlock place;
    std::vector<std::uint64_t> shared_valid;   // a bit for each byte of shared memory
  };
  // The block that a site touched last.
  struct Site {
    std::uint64_t begin = 0, bytes = 0;
    Holding *holding = nullptr;
  };

  // Accesses are aligned to their size, of at most 16 bytes: their bits lie in one word.
  void check_shared(BlockState &state, const ptx::WatchedAccess &a) {
    const std::uint64_t at = a.address - state.place.shared_begin;
    const std::uint64_t mask = ((1ull << a.bytes) - 1) << (at % 64);
    std::uint64_t &word = state.shared_valid[at / 64];
    if (a.has(a.reads) && (word & mask) != mask) report(CHECK_INIT, UNWRITTEN, state, a);
    if (a.has(a.writes)) word |= mask;
  }

  void check_ledger(const BlockState &state, const ptx::WatchedAccess &a) {
    Site &site = sites_[a.site];
    const std::uint64_t offset = a.address - site.begin;
    if (offset >= site.bytes || a.bytes > site.bytes - offset) {
      const Tenure tenure = checker_.ledger.find(a.address, ticket_->epoch);
      if (!tenure.known) return;
      const char *problem = wrong_with(tenure, ticket_->epoch, a.address, a.bytes);
      if (problem) {
        if (on_ & CHECK_MEMORY) name_block(report(CHECK_MEMORY, problem, state, a), tenure, ticket_->epoch);
        return;
      }
      held_.push_back(tenure.holding);
      site = {tenure.holding->begin, tenure.holding->requested, tenure.holding.get()};
    }
    if (!(on_ & CHECK_INIT)) return;
    Holding &holding = *site.holding;
    if (a.has(a.reads) && !holding.all_valid) {
      const std::uint64_t missing = holding.first_invalid(a.address, a.bytes);
      if (missing != a.address + a.bytes) {
        Finding &finding = report(CHECK_INIT, UNWRITTEN, state, a);
        if (!finding.has_block) name_block(finding, {true, held(site), nullptr}, ticket_->epoch);
      }
    }
    if (a.has(a.writes)) holding.set_valid(a.address, a.bytes);
  }

  HoldingPtr held(const Site &site) const {
    for (const HoldingPtr &one : held_) if (one.get() == site.holding) return one;
    return nullptr;
  }

  // The finding of this kind at this place: new, or the one of before, counted once more.
  Finding &report(Check check, const char *problem, const BlockState &state,
                  const ptx::WatchedAccess &a) {
    const std::pair<std::uint32_t, const char *> key{a.site, problem};
    auto [entry, is_new] = found_.try_emplace(key);
    Finding &finding = entry->second;
    if (!is_new) {
      ++finding.count;
      return finding;
    }
    finding.check = check;
    finding.problem = problem;
    finding.space = a.has(a.shared) ? "shared" : "global";
    finding.address = a.has(a.shared) ? a.address - state.place.shared_begin : a.address;
    finding.bytes = a.bytes;
    finding.actor = actor(state, a);
    return finding;
  }

  Actor actor(const BlockState &state, const ptx::WatchedAccess &a) const {
    Actor who;
    who.work = "kernel " + readable_name(kernel_.name);
    who.is_kernel = true;
    who.access = a.has(a.strong) && a.has(a.writes) && a.has(a.reads) ? "atomic" : a.has(a.writes) ? "write" : "read";
    const std::uint32_t *dim = state.place.dim;
    std::copy(state.place.index, state.place.index + 3, who.block);
    who.thread[0] = a.thread % dim[0];
    who.thread[1] = a.thread / dim[0] % dim[1];
    who.thread[2] = a.thread / (dim[0] * dim[1]);
    who.source = (*kernel_.places)[a.site];
    who.stream = ticket_->stream_name;
    who.stack = ticket_->stack;
    return who;
  }

  Checker &checker_;
  const unsigned on_;
  const TicketPtr ticket_;
  const ptx::KernelInfo &kernel_;
  std::vector<Site> sites_;
  std::vector<HoldingPtr> held_;   // so that what sites point to stays
  std::vector<std::unique_ptr<BlockState>> blocks_;
  std::map<std::pair<std::uint32_t, const char *>, Finding> found_;   // by site and problem
};

}  // namespace flambeau::vgpu
