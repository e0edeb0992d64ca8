// SPDX-License-Identifier: Apache-2.0
// The checks of work that touches whole ranges: copies, fills, library calls.
#pragma once
#include "checker.hpp"

namespace flambeau::vgpu {

class RangeChecks {
 public:
  RangeChecks(TicketPtr ticket, const char *work) : ticket_(std::move(ticket)), work_(work) {}

  // A read whose values are used, such as a matrix product's.
  void read(std::uint64_t address, std::uint64_t bytes) {
    if (!ticket_ || bytes == 0) return;
    race(address, bytes, false);
    const Tenure tenure = look("read", address, bytes);
    if (!tenure.holding || !checker().has(CHECK_INIT)) return;
    const std::uint64_t missing = tenure.holding->first_invalid(address, bytes);
    if (missing == address + bytes) return;
    Finding finding = start(CHECK_INIT, UNWRITTEN, "read", missing, 1);
    name_block(finding, tenure, ticket_->epoch);
    checker().findings.add(std::move(finding));
  }
  void write(std::uint64_t address, std::uint64_t bytes) {
    if (!ticket_ || bytes == 0) return;
    race(address, bytes, true);
    const Tenure tenure = look("write", address, bytes);
    if (tenure.holding) tenure.holding->set_valid(address, bytes);
  }
  // What was not written stays so in the copy. Pageable memory is the host's own business.
  void copy(std::uint64_t to, bool to_pageable, std::uint64_t from, bool from_pageable,
            std::uint64_t bytes) {
    if (!ticket_ || bytes == 0) return;
    if (!from_pageable) race(from, bytes, false);
    if (!to_pageable) race(to, bytes, true);
    const Tenure source = look("read", from, bytes), target = look("write", to, bytes);
    if (!target.holding) return;
    if (!source.holding || source.holding->first_invalid(from, bytes) == from + bytes)
      return target.holding->set_valid(to, bytes);
    std::vector<bool> written(bytes);
    for (std::uint64_t i = 0; i < bytes; ++i) written[i] = source.holding->is_valid(from + i);
    for (std::uint64_t i = 0; i < bytes; ++i) target.holding->set_valid(to + i, 1, written[i]);
  }

 private:
  void race(std::uint64_t address, std::uint64_t bytes, bool writes) {
    if (!checker().has(CHECK_RACE)) return;
    Accesses &accesses = checker().accesses;
    Stamp now;
    now.run = run_ = run_ ? run_ : accesses.begin({ticket_, work_});
    bool reported = false;
    const auto ordered = [&](const Stamp &earlier, bool) {
      return earlier.run == run_ || ticket_->comes_after(*accesses.run(earlier).ticket);
    };
    const auto conflict = [&](const Stamp &earlier, bool was_write) {
      if (reported) return;
      reported = true;
      Finding finding = start(CHECK_RACE, OTHER_STREAM, writes ? "write" : "read", address, bytes);
      finding.other = accesses.actor(earlier, was_write);
      name_block(finding, checker().ledger.find(address, ticket_->epoch), ticket_->epoch);
      checker().findings.add(std::move(finding));
    };
    Pages::Last last;
    accesses.pages.each(address, bytes, last, [&](Cell &cell) {
      stamp(cell, now, !writes, writes, ordered, conflict);
    });
  }

  // What holds the range, after the memory check; without a holding if it is wrong.
  Tenure look(const char *access, std::uint64_t address, std::uint64_t bytes) {
    if (!ticket_->knows_memory) return {};
    Tenure tenure = checker().ledger.find(address, ticket_->epoch);
    const char *problem = wrong_with(tenure, ticket_->epoch, address, bytes);
    if (!problem) return tenure;
    if (checker().has(CHECK_MEMORY)) {
      Finding finding = start(CHECK_MEMORY, problem, access, address, bytes);
      name_block(finding, tenure, ticket_->epoch);
      checker().findings.add(std::move(finding));
    }
    tenure.holding = nullptr;
    return tenure;
  }

  Finding start(Check check, const char *problem, const char *access, std::uint64_t address,
                std::uint64_t bytes) const {
    Finding finding;
    finding.check = check;
    finding.problem = problem;
    finding.address = address;
    finding.bytes = bytes;
    finding.actor.work = work_;
    finding.actor.access = access;
    finding.actor.stream = ticket_->stream_name;
    finding.actor.stack = ticket_->stack;
    return finding;
  }

  const TicketPtr ticket_;
  const char *const work_;
  std::uint32_t run_ = 0;
};

}  // namespace flambeau::vgpu
