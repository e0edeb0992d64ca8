# SPDX-License-Identifier: Apache-2.0
# distutils: language = c++
"""Virtual memory and memory pools of the active driver table as Python functions: for tests."""
from libc.stdint cimport uint64_t, uintptr_t

from flambeau.driver._table cimport (
    CUdeviceptr, CUmemAccessDesc, CUmemAllocationProp, CUmemHandle, CUmemPool, CUstream, check,
    driver,
)


cdef CUmemAllocationProp on_device(int device, int handle_types):
    cdef CUmemAllocationProp prop
    prop.type = 1
    prop.requestedHandleTypes = handle_types
    prop.location.type = 1
    prop.location.id = device
    return prop


def granularity(int device=0):
    cdef size_t size = 0
    cdef CUmemAllocationProp prop = on_device(device, 1)
    check(driver.MemGetAllocationGranularity(&size, &prop, 0))
    return size


def address_reserve(size_t nbytes):
    cdef CUdeviceptr pointer = 0
    check(driver.MemAddressReserve(&pointer, nbytes, 0, 0, 0))
    return pointer


def address_free(CUdeviceptr pointer, size_t nbytes):
    check(driver.MemAddressFree(pointer, nbytes))


def create(size_t nbytes, int device=0):
    cdef CUmemHandle handle = 0
    cdef CUmemAllocationProp prop = on_device(device, 1)
    check(driver.MemCreate(&handle, nbytes, &prop, 0))
    return handle


def release(CUmemHandle handle):
    check(driver.MemRelease(handle))


def map_(CUdeviceptr pointer, size_t nbytes, CUmemHandle handle):
    check(driver.MemMap(pointer, nbytes, 0, handle, 0))


def unmap(CUdeviceptr pointer, size_t nbytes):
    check(driver.MemUnmap(pointer, nbytes))


def set_access(CUdeviceptr pointer, size_t nbytes, devices=(0,), int flags=3):
    cdef CUmemAccessDesc[8] who
    for index, device in enumerate(devices):
        who[index].location.type = 1
        who[index].location.id = device
        who[index].flags = flags
    check(driver.MemSetAccess(pointer, nbytes, who, len(devices)))


def export_descriptor(CUmemHandle handle):
    cdef int descriptor = -1
    check(driver.MemExportToShareableHandle(&descriptor, handle, 1, 0))
    return descriptor


def import_descriptor(uintptr_t descriptor):
    cdef CUmemHandle handle = 0
    check(driver.MemImportFromShareableHandle(&handle, <void*>descriptor, 1))
    return handle


def default_pool(int device=0):
    cdef CUmemPool pool
    check(driver.DeviceGetDefaultMemPool(&pool, device))
    return <uintptr_t>pool


def pool_attribute(uintptr_t pool, int attribute):
    cdef uint64_t value = 0
    check(driver.MemPoolGetAttribute(<CUmemPool>pool, attribute, &value))
    return value


def set_pool_attribute(uintptr_t pool, int attribute, uint64_t value):
    check(driver.MemPoolSetAttribute(<CUmemPool>pool, attribute, &value))


def pool_trim(uintptr_t pool, size_t keep=0):
    check(driver.MemPoolTrimTo(<CUmemPool>pool, keep))


def alloc_async(size_t nbytes, uintptr_t stream=0):
    cdef CUdeviceptr pointer = 0
    check(driver.MemAllocAsync(&pointer, nbytes, <CUstream>stream))
    return pointer


def free_async(CUdeviceptr pointer, uintptr_t stream=0):
    check(driver.MemFreeAsync(pointer, <CUstream>stream))


def graph_trim(int device=0):
    check(driver.DeviceGraphMemTrim(device))


def alloc_managed(size_t nbytes, unsigned flags=1):
    cdef CUdeviceptr pointer = 0
    check(driver.MemAllocManaged(&pointer, nbytes, flags))
    return pointer
