// SPDX-License-Identifier: Apache-2.0
// Functions that compiled kernels call: checks off the fast path, faults, printf, rare arithmetic.
#pragma once
#include <cfenv>
#include <cmath>
#include <mutex>

#include "engine_watch.hpp"

namespace flambeau::ptx::helpers {

inline bool within(std::uint64_t address, std::uint64_t bytes, std::uint64_t begin,
                   std::uint64_t length) {
  return address >= begin && bytes <= length && address - begin <= length - bytes;
}

// Remember a range for a site, from its first aligned address on.
inline void remember(SiteCache &cache, std::uint64_t begin, std::uint64_t end,
                     std::uint64_t bytes) {
  begin = (begin + bytes - 1) / bytes * bytes;
  cache = {begin, end > begin ? (end - begin) / bytes : 0};
}

// A global or generic address that the site's cache does not cover: 0 if it may be accessed.
inline int check(Context *context, std::uint32_t thread, std::uint64_t local, std::uint64_t address,
                 std::uint32_t site_index) {
  const Job &job = *context->job;
  const Site &site = job.launch->code->sites[site_index];
  const std::uint64_t bytes = site.bytes;
  if (address & (bytes - 1)) {
    report(*context, thread, site_index, 716, address, "the address is not a multiple of the size");
    return 1;
  }
  SiteCache &cache = context->sites[site_index];
  if (const MemoryRange *range = find_range(*job.launch->memory, address)) {
    if (range->end - address >= bytes) {
      remember(cache, range->begin, range->end, bytes);
      return 0;
    }
  } else if (within(address, bytes, (std::uint64_t)context->shared, context->shared_size)) {
    remember(cache, (std::uint64_t)context->shared,
             (std::uint64_t)context->shared + context->shared_size, bytes);
    return 0;
  } else if (within(address, bytes, local, context->local_limit) ||
             (context->workspace &&
              within(address, bytes, context->workspace, sizeof job.workspace)) ||
             (site.access == Access::read &&
              within(address, bytes, (std::uint64_t)context->parameters,
                     job.launch->code->info.parameter_bytes))) {
    return 0;
  }
  report(*context, thread, site_index, 700, address,
         address < 4096 ? "a null pointer was used" : "no allocation covers the address");
  return 1;
}

// A shared or local offset that is out of bounds or misaligned.
inline void fault_offset(Context *context, std::uint32_t thread, std::uint64_t offset,
                         std::uint32_t site_index, std::uint32_t is_shared) {
  const Site &site = context->job->launch->code->sites[site_index];
  char text[160];
  if (offset & (site.bytes - 1)) {
    std::snprintf(text, sizeof text, "the offset in %s memory is not a multiple of the size",
                  is_shared ? "shared" : "local");
    report(*context, thread, site_index, 716, offset, text);
    return;
  }
  std::snprintf(text, sizeof text, "offset %llu is outside the %llu bytes of %s memory",
                (unsigned long long)offset,
                (unsigned long long)(is_shared ? context->shared_size : context->local_limit),
                is_shared ? "the block's shared" : "the thread's local");
  report(*context, thread, site_index, 700, offset, text);
}

inline void trap(Context *context, std::uint32_t thread, std::uint32_t site) {
  report(*context, thread, site, 719, 0, "the kernel executed a trap instruction");
}

inline void wrong_call(Context *context, std::uint32_t thread, std::uint32_t site,
                       std::uint64_t target) {
  report(*context, thread, site, 718, target,
         target == 0 ? "a null function pointer was called"
                     : "a pointer was called that leads to no function with these arguments");
}

inline void stack_overflow(Context *context, std::uint32_t thread, std::uint32_t site) {
  report(*context, thread, site, 719, 0, "the thread's stack overflowed: calls nest too deeply");
}

// Where the memory ends that holds a generic address: an allocation, the thread's local or the
// block's shared memory; 0 if nothing does.
inline std::uint64_t memory_end(const Context *context, std::uint64_t local, std::uint64_t address) {
  if (const MemoryRange *range = find_range(*context->job->launch->memory, address))
    return range->end;
  if (within(address, 1, local, context->local_limit)) return local + context->local_limit;
  const auto shared = reinterpret_cast<std::uint64_t>(context->shared);
  return within(address, 1, shared, context->shared_size) ? shared + context->shared_size : 0;
}

// Text in device memory, at most to the end of that memory.
inline std::string device_text(const Context *context, std::uint64_t local, std::uint64_t address) {
  const std::uint64_t end = memory_end(context, local, address);
  if (end == 0) return "(null)";
  const char *text = reinterpret_cast<const char *>(address);
  return std::string(text, strnlen(text, end - address));
}

inline void assert_fail(Context *context, std::uint32_t thread, std::uint32_t site,
                        std::uint64_t condition, std::uint64_t file, std::uint32_t line,
                        std::uint64_t function) {
  const std::string text = device_text(context, 0, file) + ":" + std::to_string(line) + ": " +
                           device_text(context, 0, function) + ": assertion `" +
                           device_text(context, 0, condition) + "` failed";
  report(*context, thread, site, 710, 0, text.c_str());
}

template <class T>
T read_argument(std::uint64_t &cursor, std::uint64_t begin, std::uint64_t end) {
  cursor = (cursor + sizeof(T) - 1) / sizeof(T) * sizeof(T);
  T value{};
  if (begin + cursor + sizeof(T) <= end)
    std::memcpy(&value, reinterpret_cast<const void *>(begin + cursor), sizeof(T));
  cursor += sizeof(T);
  return value;
}

// Format one conversion, `spec` holding everything up to and including its letter.
inline std::string format_one(const Context *context, std::uint64_t local, const std::string &spec,
                              bool wide, std::uint64_t &cursor, std::uint64_t begin,
                              std::uint64_t end) {
  char text[512];
  const char letter = spec.back();
  if (std::strchr("fFeEgGaA", letter)) {
    std::snprintf(text, sizeof text, spec.c_str(), read_argument<double>(cursor, begin, end));
  } else if (letter == 's') {
    const auto address = read_argument<std::uint64_t>(cursor, begin, end);
    std::snprintf(text, sizeof text, spec.c_str(), device_text(context, local, address).c_str());
  } else if (letter == 'p' || wide) {
    std::snprintf(text, sizeof text, spec.c_str(),
                  read_argument<std::uint64_t>(cursor, begin, end));
  } else {
    std::snprintf(text, sizeof text, spec.c_str(), read_argument<int>(cursor, begin, end));
  }
  return text;
}

// The device's printf: arguments lie packed at `arguments`, in local memory. Counts conversions.
inline int print(Context *context, std::uint64_t local, std::uint64_t format,
                 std::uint64_t arguments) {
  static std::mutex output;
  const std::string pattern = device_text(context, local, format);
  const std::uint64_t end = memory_end(context, local, arguments);
  std::string text;
  std::uint64_t cursor = 0;
  int count = 0;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '%') { text += pattern[i]; continue; }
    const std::size_t stop = pattern.find_first_of("diouxXcsfFeEgGaAp%", i + 1);
    if (stop == std::string::npos) { text += pattern.substr(i); break; }
    const std::string spec = pattern.substr(i, stop - i + 1);
    i = stop;
    if (spec.back() == '%') { text += '%'; continue; }
    if (spec.find_first_of("*nhLjt") != std::string::npos) { text += spec; continue; }
    const bool wide = spec.find_first_of("lz") != std::string::npos;
    text += format_one(context, local, spec, wide, cursor, arguments, end);
    ++count;
  }
  std::lock_guard<std::mutex> guard(output);
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
  return count;
}

enum class Directed : std::uint32_t { add, mul, fma, div, sqrt, narrow, from_signed, from_unsigned };

// Arithmetic with a rounding direction: the processor's mode is changed around one operation, and
// volatile keeps the compiler from moving or folding it.
template <class T>
inline T directed(std::uint32_t op, std::uint32_t mode, T a, T b, T c) {
  static const int modes[] = {FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD};
  const int before = std::fegetround();
  std::fesetround(modes[mode]);
  volatile T x = a, y = b, z = c, r = 0;
  switch (static_cast<Directed>(op)) {
    case Directed::add: r = x + y; break;
    case Directed::mul: r = x * y; break;
    case Directed::fma: r = std::fma((T)x, (T)y, (T)z); break;
    case Directed::div: r = x / y; break;
    case Directed::sqrt: r = std::sqrt((T)x); break;
    default: break;
  }
  std::fesetround(before);
  return r;
}

inline float directed_float(std::uint32_t op, std::uint32_t mode, float a, float b, float c) {
  return directed<float>(op, mode, a, b, c);
}
inline double directed_double(std::uint32_t op, std::uint32_t mode, double a, double b, double c) {
  return directed<double>(op, mode, a, b, c);
}
template <class To, class From>
inline To convert(std::uint32_t mode, From value) {
  static const int modes[] = {FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD};
  const int before = std::fegetround();
  std::fesetround(modes[mode]);
  volatile From x = value;
  volatile To r = static_cast<To>(x);
  std::fesetround(before);
  return r;
}

// a*b+c rounded to odd: rounding it again to a type of at most 22 bits is then exact.
inline float fma_odd(float a, float b, float c) {
  const double product = static_cast<double>(a) * b, sum = product + c;
  const double part = sum - product;
  const double error = (product - (sum - part)) + (c - part);
  std::uint64_t bits;
  std::memcpy(&bits, &sum, sizeof bits);
  if (!std::isfinite(sum)) return static_cast<float>(sum);
  if (error != 0 && !(bits & 1)) bits += ((error > 0) == (sum > 0)) ? 1 : -1;
  double odd;
  std::memcpy(&odd, &bits, sizeof odd);
  float narrow = static_cast<float>(odd);
  if (static_cast<double>(narrow) == odd || !std::isfinite(narrow)) return narrow;
  std::uint32_t word;
  std::memcpy(&word, &narrow, sizeof word);
  if (!(word & 1)) word += std::fabs(static_cast<double>(narrow)) > std::fabs(odd) ? -1 : 1;
  std::memcpy(&narrow, &word, sizeof narrow);
  return narrow;
}

// The n-th set bit of a mask from a place on: upwards for positive n, downwards for negative, that
// place itself for 0; all ones if there is none.
inline std::uint32_t find_nth(std::uint32_t mask, std::uint32_t from, std::int32_t n) {
  if (from > 31) return ~0u;
  if (n == 0) return mask >> from & 1 ? from : ~0u;
  std::int64_t left = n > 0 ? n : -std::int64_t{n};
  for (int at = static_cast<int>(from); at >= 0 && at < 32; at += n > 0 ? 1 : -1)
    if ((mask >> at & 1) && --left == 0) return static_cast<std::uint32_t>(at);
  return ~0u;
}

// An mbarrier: arrivals that are missing, arrivals of a phase, bytes that are missing, the phase.
// A block's threads share one host thread, so it needs no atomics.
struct MemoryBarrier {
  std::uint64_t pending : 20, expected : 20, bytes : 21, phase : 3;
};
enum class MemoryBarrierOp : std::uint32_t { init, arrive, drop, expect, complete, load };

inline std::uint64_t operate_barrier(void *address, std::uint32_t op, std::uint32_t count) {
  MemoryBarrier barrier;
  std::uint64_t before;
  std::memcpy(&barrier, address, sizeof barrier);
  std::memcpy(&before, address, sizeof before);
  switch (static_cast<MemoryBarrierOp>(op)) {
    case MemoryBarrierOp::init: barrier = {count, count, 0, 0}; break;
    case MemoryBarrierOp::drop: barrier.expected -= 1; barrier.pending -= count; break;
    case MemoryBarrierOp::arrive: barrier.pending -= count; break;
    case MemoryBarrierOp::expect: barrier.bytes += count; break;
    case MemoryBarrierOp::complete: barrier.bytes -= count; break;
    case MemoryBarrierOp::load: return before;
  }
  const bool starts = static_cast<MemoryBarrierOp>(op) == MemoryBarrierOp::init;
  if (!starts && barrier.pending == 0 && barrier.bytes == 0) {
    barrier.pending = barrier.expected;
    ++barrier.phase;
  }
  std::memcpy(address, &barrier, sizeof barrier);
  return before;
}

struct Symbol {
  const char *name;
  const void *address;
};

inline const std::vector<Symbol> &symbols() {
  using Unary = float (*)(float);
  static const std::vector<Symbol> table = {
      {"fl_check", (const void *)check},
      {"fl_fault_offset", (const void *)fault_offset},
      {"fl_trap", (const void *)trap},
      {"fl_watch", (const void *)watch},
      {"fl_watch_fence", (const void *)watch_fence},
      {"fl_wrong_call", (const void *)wrong_call},
      {"fl_stack_overflow", (const void *)stack_overflow},
      {"fl_assert_fail", (const void *)assert_fail},
      {"fl_print", (const void *)print},
      {"fl_directed_float", (const void *)directed_float},
      {"fl_directed_double", (const void *)directed_double},
      {"fl_find_nth", (const void *)find_nth},
      {"fl_mbarrier", (const void *)operate_barrier},
      {"fl_fma_odd", (const void *)fma_odd},
      {"fl_double_to_float", (const void *)convert<float, double>},
      {"fl_s64_to_float", (const void *)convert<float, std::int64_t>},
      {"fl_u64_to_float", (const void *)convert<float, std::uint64_t>},
      {"fl_s64_to_double", (const void *)convert<double, std::int64_t>},
      {"fl_u64_to_double", (const void *)convert<double, std::uint64_t>},
      {"fl_sin", (const void *)static_cast<Unary>(std::sin)},
      {"fl_cos", (const void *)static_cast<Unary>(std::cos)},
      {"fl_exp2", (const void *)static_cast<Unary>(std::exp2)},
      {"fl_log2", (const void *)static_cast<Unary>(std::log2)},
      {"fl_tanh", (const void *)static_cast<Unary>(std::tanh)},
      {"fma", (const void *)static_cast<double (*)(double, double, double)>(std::fma)},
      {"fmaf", (const void *)static_cast<float (*)(float, float, float)>(std::fma)},
      {"memcpy", (const void *)static_cast<void *(*)(void *, const void *, std::size_t)>(std::memcpy)},
      {"memset", (const void *)static_cast<void *(*)(void *, int, std::size_t)>(std::memset)},
  };
  return table;
}

}  // namespace flambeau::ptx::helpers
