// SPDX-License-Identifier: Apache-2.0
// The checks of a process: which are on, what they know, what they found. Work runs one piece at a
// time, so what only running work touches needs no lock.
#pragma once
#include <cxxabi.h>

#include <atomic>
#include <cstdlib>

#include "findings.hpp"
#include "ledger.hpp"
#include "shadow.hpp"
#include "ticket.hpp"

namespace flambeau::vgpu {

// What Python does for the checks; set by the module that it loads.
struct CheckHooks {
  int (*stack)() = nullptr;   // the number of the calling thread's present stack, -1 for none
  void (*prepare)(std::uint64_t function) = nullptr;   // make a function's watched code
};

struct Checker {
  std::atomic<unsigned> on{0};   // Check bits
  CheckHooks hooks;
  std::uint64_t since = 0;       // the epoch at which they were turned on
  Ledger ledger;
  Findings findings;
  Accesses accesses;
  VectorClock host;              // what host code knows to be done; under the machine's mutex
  std::uint32_t streams = 0;     // numbered so far; the same

  bool has(Check check) const { return (on.load(std::memory_order_relaxed) & check) != 0; }

  // The machine is gone; what was found stays.
  void forget() {
    ledger.clear();
    accesses.clear();
    host.clear();
  }
};

inline Checker &checker() {
  static Checker *instance = new Checker();   // never destroyed: work may outlive exit()
  return *instance;
}

inline unsigned checks_on() { return checker().on.load(std::memory_order_relaxed); }
inline bool checking() { return checks_on() != 0; }

// Where the program is now; taken without locks, because Python may run finalizers meanwhile.
inline thread_local int stack_of_call = -1;
inline int present_stack() {
  const CheckHooks &hooks = checker().hooks;
  return checking() && hooks.stack ? hooks.stack() : -1;
}

inline std::string readable_name(const char *name) {
  int status = 0;
  char *plain = abi::__cxa_demangle(name, nullptr, nullptr, &status);
  std::string text = status == 0 && plain ? plain : name;
  std::free(plain);
  const std::size_t arguments = text.find('(');
  return arguments == std::string::npos || arguments == 0 ? text : text.substr(0, arguments);
}

constexpr const char *OTHER_STREAM = "that other work touches at the same time";
constexpr const char *UNWRITTEN = "that nobody has written";

// What is wrong with an access in the memory that work finds at its address; null if nothing is.
inline const char *wrong_with(const Tenure &tenure, std::uint64_t epoch, std::uint64_t address,
                              std::uint64_t bytes, bool plain_write = true) {
  if (!tenure.known) return nullptr;
  if (!tenure.holding) return "outside of every block";
  if (tenure.holding->died <= epoch) return "after the memory was freed";
  if (address + bytes <= tenure.holding->end()) return nullptr;
  // the word that holds the last bytes: how atomics of fewer bytes are made
  const bool last_word = !plain_write && bytes == 4 && address < tenure.holding->end();
  return last_word ? nullptr : "past the end of a block";
}

inline void name_block(Finding &finding, const Tenure &tenure, std::uint64_t epoch) {
  const HoldingPtr &block = tenure.holding ? tenure.holding : tenure.nearest;
  if (!block) return;
  finding.has_block = true;
  finding.block_begin = block->begin;
  finding.block_bytes = block->requested;
  finding.born_stack = block->born_stack;
  if (block->died <= epoch) finding.died_stack = block->died_stack;
  const std::uint64_t last = finding.address + finding.bytes;
  if (finding.address < block->begin) {
    finding.distance = -static_cast<std::int64_t>(block->begin - finding.address);
  } else if (last > block->end()) {
    finding.distance = static_cast<std::int64_t>(last - block->end());
  }
}

}  // namespace flambeau::vgpu
