// SPDX-License-Identifier: Apache-2.0
// What the 64 bytes of a handle between processes say. The other process reaches our memory files
// through /proc/<pid>/fd, so both must be of one user and see each other's process ids.
#pragma once
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "flambeau/driver/table.hpp"

namespace flambeau::vgpu {

constexpr std::uint32_t EVENT_HANDLE = 0x66766531, MEMORY_HANDLE = 0x66766d31,
                        PHYSICAL_HANDLE = 0x66767031;

struct HandleContent {
  std::uint32_t kind = 0;
  std::int32_t process = 0, file = 0, pad = 0;
  std::uint64_t place = 0;    // slot of an event; offset of memory in its file
  std::uint64_t bytes = 0;    // of the allocation
  std::uint64_t inode = 0;    // of the file, against descriptors that were reused
  unsigned char unused[24] = {};
};
static_assert(sizeof(HandleContent) == sizeof(CUipcHandle), "handles are 64 bytes");

inline HandleContent unpack(const CUipcHandle &handle) {
  HandleContent content;
  std::memcpy(static_cast<void *>(&content), &handle, sizeof content);
  return content;
}

inline void pack(CUipcHandle *handle, const HandleContent &content) {
  std::memcpy(handle, &content, sizeof content);
}

inline std::uint64_t inode_of(int file) {
  struct stat about;
  return fstat(file, &about) == 0 ? about.st_ino : 0;
}

// A descriptor of the file that a handle means, or -1 when it is no longer there.
inline int open_handle_file(const HandleContent &content) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%d/fd/%d", content.process, content.file);
  const int file = open(path, O_RDWR | O_CLOEXEC);
  if (file >= 0 && inode_of(file) != content.inode) {
    close(file);
    return -1;
  }
  return file;
}

}  // namespace flambeau::vgpu
