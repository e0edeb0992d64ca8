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
    const Tenure tenure = look("write", address, bytes);
    if (tenure.holding) tenure.holding->set_valid(address, bytes);
  }
  // What was not written stays so in the copy.
  void copy(std::uint64_t to, std::uint64_t from, std::uint64_t bytes) {
    if (!ticket_ || bytes == 0) return;
    const Tenure source = look("read", from, bytes), target = look("write", to, bytes);
    if (!target.holding) return;
    if (!source.holding || source.holding->first_invalid(from, bytes) == from + bytes)
      return target.holding->set_valid(to, bytes);
    std::vector<bool> written(bytes);
    for (std::uint64_t i = 0; i < bytes; ++i) written[i] = source.holding->is_valid(from + i);
    for (std::uint64_t i = 0; i < bytes; ++i) target.holding->set_valid(to + i, 1, written[i]);
  }

 private:
  // What holds the range, after the memory check; without a holding if it is wrong.
  Tenure look(const char *access, std::uint64_t address, std::uint64_t bytes) {
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
};

}  // namespace flambeau::vgpu
