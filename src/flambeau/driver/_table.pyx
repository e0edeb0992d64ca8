# SPDX-License-Identifier: Apache-2.0
# distutils: language = c++
"""The active driver table: who fills it, and the wrappers for fault injection and tracing."""
from libc.stdint cimport int64_t, uintptr_t
from libcpp.vector cimport vector

cdef extern from *:
    """
    #include "flambeau/driver/intercept.hpp"
    namespace flambeau {
    inline Interceptor &interceptor() { static Interceptor *instance = new Interceptor(); return *instance; }
    }
    """

cdef extern from "flambeau/driver/intercept.hpp" namespace "flambeau":
    int ENTRY_COUNT
    const char* entry_name(int entry)
    cdef struct TraceRecord:
        int entry
        CUresult status
    cdef cppclass FaultPlan:
        int64_t first
        int64_t times
        CUresult status
    cdef cppclass Interceptor:
        DriverTable active
        FaultPlan* plans
        vector[TraceRecord] trace
    Interceptor& interceptor()
    void install_table "flambeau::install"(Interceptor&, const DriverTable&)
    void rewire(Interceptor&)
    void set_plan(Interceptor&, int entry, int64_t first, int64_t times, CUresult status)
    void set_tracing(Interceptor&, bint on)
    vector[TraceRecord] take_trace(Interceptor&)

cdef DriverTable _empty
install_table(interceptor(), _empty)
driver = &interceptor().active

_entries = {(<bytes>entry_name(i)).decode(): i for i in range(ENTRY_COUNT)}
_explain = None
_report_capture = None


def install(uintptr_t address):
    install_table(interceptor(), (<const DriverTable*>address)[0])
    rewire(interceptor())


def set_explainer(explain):
    global _explain
    _explain = explain


def set_capture_reporter(report):
    global _report_capture
    _report_capture = report


cdef int raise_status(CUresult status) except -1:
    from flambeau.driver import errors
    detail = None if _explain is None else _explain(status)
    if 900 <= status <= 908 and _report_capture is not None:
        raise _report_capture(status, detail)
    raise errors.from_status(status, detail)


def check_status(int status):
    check(status)


def entries():
    return tuple(_entries)


def inject(str entry, *, int status, int64_t nth=1, int64_t times=1):
    if entry not in _entries:
        raise ValueError(
            f"no driver entry is called {entry!r}; flambeau.driver._table.entries() lists them all")
    if nth < 1 or times < 1:
        raise ValueError(f"nth and times count from 1, got nth={nth}, times={times}")
    set_plan(interceptor(), _entries[entry], nth, times, status)


def clear_faults():
    for index in range(ENTRY_COUNT):
        set_plan(interceptor(), index, 0, 0, 0)


def start_trace():
    take_trace(interceptor())
    set_tracing(interceptor(), True)


def stop_trace():
    set_tracing(interceptor(), False)
    return [((<bytes>entry_name(r.entry)).decode(), r.status) for r in take_trace(interceptor())]
