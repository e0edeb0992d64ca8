// SPDX-License-Identifier: Apache-2.0
// The checks of one grid: each access of its threads is held against the ledger and the shadows.
#pragma once
#include <cstring>
#include <map>
#include <set>
#include <tuple>

#include "checker.hpp"
#include "order.hpp"

namespace flambeau::vgpu {

constexpr const char *NO_BARRIER = "that nothing orders with another thread's access";
constexpr const char *OTHER_BLOCK = "that another block touches at the same time";

constexpr std::uint64_t NEARBY = 1 << 20;   // bytes by which an index may miss its block

class GridWatcher final : public ptx::Watcher {
 public:
  GridWatcher(Checker &checker, const TicketPtr &ticket, const ptx::KernelInfo &kernel,
              const std::uint32_t *grid, const std::uint32_t *dim, const char *parameters)
      : checker_(checker), on_(checks_for(*ticket)), ticket_(ticket), places_(kernel.places),
        memory_(checker.ledger.span()) {
    sites_.resize(places_->size());
    self_ = Run{ticket, "kernel " + readable_name(kernel.name), true, {}, {}, places_};
    std::copy(grid, grid + 3, self_.grid);
    std::copy(dim, dim + 3, self_.dim);
    if (on_ & CHECK_RACE) run_ = checker.accesses.begin(self_);
    for (std::uint32_t at = 0; at + 8 <= kernel.parameter_bytes; at += 8) note_pointer(parameters + at);
  }
  ~GridWatcher() override {
    settle();
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
    state->order.begin(place.dim[0] * place.dim[1] * place.dim[2]);
    return state;
  }

  void access(void *block, const ptx::WatchedAccess &a) override {
    BlockState &state = *static_cast<BlockState *>(block);
    if (on_ & CHECK_RACE) {
      settle();
      check_race(state, a);
    }
    if ((on_ & CHECK_MEMORY) && a.bytes >= 8 && a.has(a.reads)) {
      for (std::uint32_t at = 0; at < a.bytes; at += 8)
        note_pointer(reinterpret_cast<const void *>(a.address + at));
    }
    if (a.has(a.shared)) {
      if (on_ & CHECK_INIT) check_shared(state, a);
    } else if (on_ & (CHECK_MEMORY | CHECK_INIT)) {
      check_ledger(state, a);
    }
  }
  void fence(void *block, std::uint32_t thread) override {
    BlockState &state = *static_cast<BlockState *>(block);
    const std::uint32_t now = ++order_.time;
    state.order.threads[thread].fence(now);
    order_.blocks[state.place.number].fence(now);
  }
  void barrier(void *block) override { ++static_cast<BlockState *>(block)->order.epoch; }
  void warp_sync(void *block, std::uint32_t warp, std::uint32_t lanes) override {
    static_cast<BlockState *>(block)->order.warp(warp).synchronize(lanes);
  }

 private:
  static unsigned checks_for(const Ticket &ticket) {
    return checks_on() & (ticket.knows_memory ? ~0u : static_cast<unsigned>(CHECK_RACE));
  }

  struct BlockState {
    ptx::WatchedBlock place;
    std::vector<std::uint64_t> shared_valid;   // a bit for each byte of shared memory
    Pages shared;                              // its latest accesses
    Pages::Last last_shared;
    BlockOrder order;
  };
  // A problem between two sites, whichever came first.
  using Key = std::tuple<std::uint32_t, std::uint32_t, const char *>;
  static Key key_of(std::uint32_t a, std::uint32_t b, const char *problem) {
    return {std::min(a, b), std::max(a, b), problem};
  }
  // Two writes that nothing orders, of which the second is about to happen: no harm if it writes
  // what is there already.
  struct Overwrite {
    std::uint64_t address = 0, bytes = 0;
    Key key;
    unsigned char before[16];
    Finding finding;
  };
  // The block that a site touched last.
  struct Site {
    std::uint64_t begin = 0, bytes = 0;
    Holding *holding = nullptr;
    Pages::Last page;
  };

  // What may be a pointer: the kernel was given the block that it points into.
  void note_pointer(const void *word) {
    std::uint64_t value;
    std::memcpy(&value, word, sizeof value);
    if (value - last_given_.first < last_given_.second) return;
    if (value - memory_.first >= memory_.second) return;
    const Tenure tenure = checker_.ledger.find(value, ticket_->epoch);
    if (!tenure.holding) return;
    held_.push_back(tenure.holding);
    given_.insert(tenure.holding.get());
    last_given_ = {tenure.holding->begin, tenure.holding->size};
  }

  // An access to a block that the kernel was given no pointer to. With one near by that it was given,
  // it has missed that one; true if so.
  bool check_given(const BlockState &state, const ptx::WatchedAccess &a) {
    const Holding *nearest = nullptr;
    std::uint64_t closest = NEARBY;
    for (const Holding *given : given_) {
      const std::uint64_t gap = a.address >= given->end() ? a.address - given->end() : given->begin - a.address;
      if (gap >= closest) continue;
      closest = gap;
      nearest = given;
    }
    if (!nearest) return false;
    Finding &finding = report(CHECK_MEMORY, "of another block than it was given", state, a);
    for (const HoldingPtr &one : held_) {
      if (one.get() == nearest && !finding.has_block) name_block(finding, {true, one, nullptr}, ticket_->epoch);
    }
    return true;
  }

  void check_race(BlockState &state, const ptx::WatchedAccess &a) {
    const bool strong = a.has(a.strong), writes = a.has(a.writes), shared = a.has(a.shared);
    if (strong) signal(state, a);
    Stamp now{run_, static_cast<std::uint32_t>(state.place.number), a.site, state.order.epoch, 0, order_.time,
              static_cast<std::uint16_t>(a.thread), strong};
    now.lane_clock = state.order.warp(a.thread / 32).own(a.thread % 32);
    bool reported = false;
    const auto ordered = [&](const Stamp &earlier, bool was_write) {
      return comes_before(state, earlier, was_write, now, writes, shared);
    };
    const auto conflict = [&](const Stamp &earlier, bool was_write) {
      if (!reported) report_race(state, a, earlier, was_write);
      reported = true;
    };
    const auto visit = [&](Cell &cell) { stamp(cell, now, a.has(a.reads), writes, ordered, conflict); };
    if (shared) state.shared.each(a.address - state.place.shared_begin, a.bytes, state.last_shared, visit);
    else checker_.accesses.pages.each(a.address, a.bytes, sites_[a.site].page, visit);
  }

  void signal(BlockState &state, const ptx::WatchedAccess &a) {
    Signals &thread = state.order.threads[a.thread], &block = order_.blocks[state.place.number];
    if (a.has(a.orders)) {
      thread.fence(++order_.time);
      block.fence(order_.time);
    }
    const std::uint32_t now = ++order_.time;
    if (a.has(a.writes)) {
      thread.send(now);
      block.send(now);
    }
    if (a.has(a.reads)) {
      thread.look(now);
      block.look(now);
    }
  }

  bool comes_before(BlockState &state, const Stamp &earlier, bool was_write, const Stamp &now, bool writes,
                    bool shared) const {
    if (earlier.strong && now.strong) return true;
    if (earlier.run != now.run) return shared || ticket_->comes_after(*checker_.accesses.run(earlier).ticket);
    // a loop around compare-and-swap begins with a plain read: only plain writes do harm
    if (!(was_write && !earlier.strong) && !(writes && !now.strong)) return true;
    if (earlier.block == now.block) return state.order.ordered(earlier, now);
    return shared || order_.ordered(earlier, now);
  }

  void report_race(const BlockState &state, const ptx::WatchedAccess &a, const Stamp &earlier,
                   bool was_write) {
    const bool same_run = earlier.run == run_;
    const char *problem = !same_run ? OTHER_STREAM : earlier.block == state.place.number ? NO_BARRIER : OTHER_BLOCK;
    if (same_run && was_write && a.has(a.writes) && !a.has(a.reads) && a.bytes <= sizeof Overwrite::before) {
      overwrite_ = std::make_unique<Overwrite>();
      overwrite_->address = a.address;
      overwrite_->bytes = a.bytes;
      overwrite_->key = key_of(a.site, earlier.site, problem);
      std::memcpy(overwrite_->before, reinterpret_cast<const void *>(a.address), a.bytes);
      overwrite_->finding = start(CHECK_RACE, problem, state, a);
      overwrite_->finding.other = checker_.accesses.actor(earlier, was_write);
      return;
    }
    Finding &finding = report(CHECK_RACE, problem, state, a, same_run ? earlier.site : a.site);
    if (!finding.other.work.empty()) return;
    finding.other = checker_.accesses.actor(earlier, was_write);
    if (!a.has(a.shared))
      name_block(finding, checker_.ledger.find(a.address, ticket_->epoch), ticket_->epoch);
  }

  // The write of which `overwrite_` tells has happened.
  void settle() {
    if (!overwrite_) return;
    const std::unique_ptr<Overwrite> now = std::move(overwrite_);
    if (std::memcmp(now->before, reinterpret_cast<const void *>(now->address), now->bytes) == 0) return;
    const auto [entry, is_new] = found_.try_emplace(now->key, now->finding);
    if (!is_new) ++entry->second.count;
  }

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
      const char *problem = wrong_with(tenure, ticket_->epoch, a.address, a.bytes,
                                       a.has(a.writes) && !a.has(a.strong));
      if (problem) {
        if (on_ & CHECK_MEMORY) name_block(report(CHECK_MEMORY, problem, state, a), tenure, ticket_->epoch);
        return;
      }
      if ((on_ & CHECK_MEMORY) && !given_.count(tenure.holding.get()) && check_given(state, a)) return;
      held_.push_back(tenure.holding);
      const bool last_word = a.address + a.bytes > tenure.holding->end();
      site.begin = last_word ? a.address : tenure.holding->begin;
      site.bytes = last_word ? a.bytes : tenure.holding->requested;
      site.holding = tenure.holding.get();
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
                  const ptx::WatchedAccess &a, std::uint32_t other_site = ~0u) {
    const Key key = key_of(a.site, other_site == ~0u ? a.site : other_site, problem);
    auto [entry, is_new] = found_.try_emplace(key);
    Finding &finding = entry->second;
    if (!is_new) {
      ++finding.count;
      return finding;
    }
    finding = start(check, problem, state, a);
    return finding;
  }

  Finding start(Check check, const char *problem, const BlockState &state,
                const ptx::WatchedAccess &a) const {
    Finding finding;
    finding.check = check;
    finding.problem = problem;
    finding.space = a.has(a.shared) ? "shared" : "global";
    finding.address = a.has(a.shared) ? a.address - state.place.shared_begin : a.address;
    finding.bytes = a.bytes;
    Stamp now;
    now.run = run_;
    now.block = static_cast<std::uint32_t>(state.place.number);
    now.site = a.site;
    now.thread = static_cast<std::uint16_t>(a.thread);
    now.strong = a.has(a.strong);
    finding.actor = Accesses::actor(self_, now, a.has(a.writes));
    return finding;
  }

  Checker &checker_;
  const unsigned on_;
  const TicketPtr ticket_;
  const std::shared_ptr<const std::vector<std::string>> places_;
  const std::pair<std::uint64_t, std::uint64_t> memory_;
  Run self_;
  std::uint32_t run_ = 0;   // its number, for the race check
  GridOrder order_;
  std::unique_ptr<Overwrite> overwrite_;
  std::vector<Site> sites_;
  std::vector<HoldingPtr> held_;   // so that what sites point to stays
  std::vector<std::unique_ptr<BlockState>> blocks_;
  std::set<const Holding *> given_;   // blocks that its parameters, or what it has read, point to
  std::pair<std::uint64_t, std::uint64_t> last_given_{0, 0};
  std::map<Key, Finding> found_;
};

}  // namespace flambeau::vgpu
