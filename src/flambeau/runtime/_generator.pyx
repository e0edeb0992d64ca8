# SPDX-License-Identifier: Apache-2.0
# distutils: language = c++
# cython: embedsignature=False
"""Random number generators: Mersenne Twister on the host, Philox's seed and offset for CUDA."""
import os

from libc.string cimport memcpy

from flambeau.runtime cimport _dtype, _state
from flambeau.runtime._device cimport KIND_CPU, KIND_CUDA, device_of, parse_device, resolve_device
from flambeau.runtime._dtype cimport set_public_name
from flambeau.runtime._tensor cimport Tensor, new_tensor

cdef enum:
    FIRST_SEED = 67280421310721         # of a generator that was not seeded
    HOST_STATE_BYTES = 5056
    PHILOX_STATE_BYTES = 16


cdef uint64_t parse_seed(object seed) except? 0:
    """Negative seeds are taken in two's complement."""
    if not -(1 << 63) <= seed < 1 << 64:
        raise ValueError(
            f"Overflow when unpacking long long: a seed lies from -2**63 to 2**64 - 1, got {seed}")
    return <uint64_t>(int(seed) & 0xFFFFFFFFFFFFFFFF)


def checked_seed(seed):
    """A seed as an int from 0 to 2**64 - 1; what `int` takes is taken.

    Raises
    ------
    ValueError
        It is below -2**63 or above 2**64 - 1, or no number.
    """
    return parse_seed(int(seed))


def random_seed(int bits=64):
    """A seed from the operating system."""
    return int.from_bytes(os.urandom(8), "little") >> (64 - bits)


cdef class PhiloxState:
    cdef int set_seed(self, uint64_t seed) except -1:
        if self.cells.captured:
            if seed != self.seed:
                raise RuntimeError(
                    "set_current_seed can be called during stream capture only if new seed is the same: "
                    f"the seed is {self.seed}, and {seed} was given. Seed before the capture or before "
                    "a replay.")
            return 0
        self.seed = seed
        self.offset = 0
        return 0

    cdef int refuse_in_capture(self, str what) except -1:
        if self.cells.captured:
            raise RuntimeError(f"Cannot call {what} during CUDA graph capture: a replay decides it")
        return 0


cdef class Generator:
    """Generator(device=None)\n--\n
    A stream of random numbers.

    Parameters
    ----------
    device
        ``"cpu"``, the default, for a Mersenne Twister (mt19937), ``"cuda"`` or ``"cuda:1"`` for Philox4x32-10.

    Attributes
    ----------
    device : flambeau.device
        Where it draws.

    Examples
    --------
    >>> import flambeau as torch
    >>> g = torch.Generator("cuda").manual_seed(42)
    >>> x = torch.rand(3, device="cuda", generator=g)
    >>> torch.equal(x, torch.rand(3, device="cuda", generator=g.manual_seed(42)))
    True
    """

    def __init__(self, device=None):
        wanted = parse_device("cpu" if device is None else device)
        if wanted.kind == KIND_CPU:
            self.device = device_of(-1)
            if self.host == NULL:
                self.host = new Mt19937(FIRST_SEED)
            self.philox = None
        elif wanted.kind == KIND_CUDA:
            self.device = device_of(resolve_device(device))
            self.philox = PhiloxState.__new__(PhiloxState)
            self.philox.seed = FIRST_SEED
        else:
            raise RuntimeError(f"Device type {wanted.type} is not supported for torch.Generator() api.")

    def __dealloc__(self):
        del self.host

    def manual_seed(self, seed):
        """Set the seed and start its stream anew.

        Parameters
        ----------
        seed
            An int from -2**63 to 2**64 - 1; negative ones in two's complement.

        Returns
        -------
        Generator
            This one.

        Raises
        ------
        RuntimeError
            It is no int, or another seed is set while a graph is captured.
        ValueError
            It is out of range.
        """
        if not isinstance(seed, int):
            if not hasattr(seed, "__index__"):
                raise RuntimeError(f"manual_seed expected a long, but got {type(seed).__name__}")
            seed = seed.__index__()
        self._reseed(parse_seed(seed))
        return self

    cdef int _reseed(self, uint64_t seed) except -1:
        if self.philox is not None:
            self.philox.set_seed(seed)
        else:
            self.host.reseed(seed)
        return 0

    def seed(self):
        """Set a seed from the operating system and return it; 53 bits of it on CUDA."""
        if self.philox is not None:
            self.philox.refuse_in_capture("seed")
        seed = random_seed(64 if self.philox is None else 53)
        self._reseed(seed)
        return seed

    def initial_seed(self):
        """The seed that was set last."""
        return self.philox.seed if self.philox is not None else self.host.seed()

    def get_state(self):
        """The state as a host tensor of bytes: 16 (seed and offset) on CUDA, 5056 on the CPU."""
        cdef int64_t size = HOST_STATE_BYTES if self.philox is None else PHILOX_STATE_BYTES
        cdef Tensor state = new_tensor(-1, _dtype.UInt8, 1, &size)
        cdef uint64_t* words = <uint64_t*>state.data
        if self.philox is None:
            self.host.save(state.data)
        else:
            words[0] = self.philox.seed
            words[1] = self.philox.offset
        return state

    def set_state(self, _new_state):
        """Go to a state that `get_state` gave.

        Parameters
        ----------
        _new_state
            A contiguous host tensor of uint8. For CUDA 8 bytes are enough: the offset is 0 then.

        Returns
        -------
        Generator
            This one.

        Raises
        ------
        TypeError
            It is no such tensor.
        RuntimeError
            Its size or its contents are not those of a state.
        """
        cdef Tensor state
        if not isinstance(_new_state, Tensor):
            raise TypeError(f"expected a torch.ByteTensor, but got {type(_new_state).__name__}")
        state = _new_state
        if state.device_index >= 0 or state.scalar_type != _dtype.UInt8:
            raise TypeError(
                f"RNG state must be a torch.ByteTensor: uint8 on the CPU; got {state.dtype} on {state.device}")
        if not state.contiguous:
            raise RuntimeError("RNG state must be contiguous; call contiguous() on it first")
        if self.philox is None:
            self._set_host_state(state)
        else:
            self._set_philox_state(state)
        return self

    cdef int _set_host_state(self, Tensor state) except -1:
        if state.count != HOST_STATE_BYTES:
            raise RuntimeError(
                f"RNG state is wrong size: Expected a CPUGeneratorImplState of size {HOST_STATE_BYTES} but "
                f"found the input RNG state size to be {state.count}")
        if not self.host.restore(state.data):
            raise RuntimeError("Invalid mt19937 state: these bytes did not come from get_state()")
        return 0

    cdef int _set_philox_state(self, Tensor state) except -1:
        cdef uint64_t[2] words
        words[1] = 0
        if state.count not in (8, PHILOX_STATE_BYTES):
            raise RuntimeError(
                f"RNG state is wrong size: {state.count} bytes were given, and a CUDA generator's has "
                f"{PHILOX_STATE_BYTES} (seed, offset), or 8 (seed)")
        memcpy(words, state.data, state.count)
        _check_offset(words[1])
        self.philox.refuse_in_capture("set_state")
        self.philox.seed = words[0]
        self.philox.offset = words[1]
        return 0

    def get_offset(self):
        """How many 32-bit numbers each thread has drawn of the seed's stream; CUDA only."""
        self._require_philox("get_offset")
        return self.philox.offset

    def set_offset(self, offset):
        """Go to an offset, a multiple of 4, in the seed's stream; CUDA only. Returns this one."""
        self._require_philox("set_offset")
        if not 0 <= offset < 1 << 64:
            raise ValueError(f"an offset lies from 0 to 2**64 - 1, got {offset}")
        _check_offset(offset)
        self.philox.offset = offset
        return self

    cdef int _require_philox(self, str what) except -1:
        if self.philox is None:
            raise RuntimeError(f"CPU Generator does not use offset: {what} is for CUDA generators")
        return self.philox.refuse_in_capture(what)

    def philox_state(self, uint64_t increment):
        """Seed and offset for a kernel of one's own, and move the offset on; CUDA only.

        Parameters
        ----------
        increment
            How many 32-bit numbers each thread may draw; rounded up to a multiple of 4.

        Returns
        -------
        seed, offset : Tensor
            One int64 element each on this generator's device, bits as they are.
        """
        cdef int64_t two = 2
        cdef Tensor both
        cdef PhiloxArguments taken
        self._require_philox("philox_state")
        taken = take(self, increment)
        both = new_tensor(-1, _dtype.Int64, 1, &two)
        (<uint64_t*>both.data)[0] = taken.seed
        (<uint64_t*>both.data)[1] = taken.offset
        moved = (<object>both).to(self.device)
        return moved.narrow(0, 0, 1), moved.narrow(0, 1, 1)

    def clone_state(self):
        """A new generator on the same device that starts where this one is."""
        cdef Generator made = Generator.__new__(Generator)
        made.device = self.device
        if self.philox is None:
            made.host = new Mt19937(0)
            made.host[0] = self.host[0]
        else:
            self.philox.refuse_in_capture("clone_state")
            made.philox = PhiloxState.__new__(PhiloxState)
            made.philox.seed = self.philox.seed
            made.philox.offset = self.philox.offset
        return made

    def graphsafe_get_state(self):
        """A generator that shares this one's state: what one draws, the other does not draw again."""
        cdef Generator made
        if self.philox is None:
            raise RuntimeError("graphsafe_get_state is for CUDA generators")
        made = Generator.__new__(Generator)
        made.device = self.device
        made.philox = self.philox
        return made

    def graphsafe_set_state(self, Generator _new_state not None):
        """Share the state of another CUDA generator from now on, and return this one."""
        if self.philox is None or _new_state.philox is None:
            raise RuntimeError("graphsafe_set_state is for CUDA generators")
        self.philox.refuse_in_capture("graphsafe_set_state")
        self.philox = _new_state.philox
        return self

    def _begin_capture(self, uint64_t seed_address, uint64_t offset_address):
        """Have kernels read seed and offset from device memory until `_end_capture`."""
        if self.philox is None:
            raise RuntimeError("only CUDA generators can be captured")
        if self.philox.cells.captured:
            raise RuntimeError("this generator is being captured already")
        self.philox.cells = PhiloxArguments(seed_address, offset_address, 0, 1)

    def _end_capture(self):
        """Go back to drawing; by how much one replay advances the offset."""
        cdef uint64_t total = self.philox.cells.graph_offset
        self.philox.cells = PhiloxArguments(0, 0, 0, 0)
        return total

    def __reduce__(self):
        offset = None if self.philox is None else self.philox.offset
        return Generator, (self.device,), (self.initial_seed(), offset, self.get_state())

    def __setstate__(self, state):
        seed, offset, bytes_of_state = state
        self.manual_seed(seed)
        if offset is not None:
            self.set_offset(offset)
        self.set_state(bytes_of_state)

    def __repr__(self):
        return f"<torch.Generator device={self.device} seed={self.initial_seed()}>"


set_public_name(Generator, b"flambeau.Generator")


cdef int _check_offset(object offset) except -1:
    if offset % 4:
        raise RuntimeError(f"offset must be a multiple of 4, got {offset}")
    return 0


cdef object _joiner = None


def set_joiner(join):
    global _joiner
    _joiner = join


cdef PhiloxArguments take(Generator generator, uint64_t increment) except *:
    cdef PhiloxState state = generator.philox
    cdef PhiloxArguments taken
    if _state.captures and not state.cells.captured:
        _joiner(generator)
    increment = (increment + 3) & ~<uint64_t>3
    if state.cells.captured:
        taken = state.cells
        state.cells.graph_offset += increment
        return taken
    taken.seed = state.seed
    taken.offset = state.offset
    taken.graph_offset = 0
    taken.captured = 0
    state.offset += increment
    return taken


# -- the defaults ----------------------------------------------------------------------------------

default_generator = Generator()
default_generator.manual_seed(random_seed())

cdef list _defaults = []                # of the CUDA devices
cdef int _defaults_epoch = -1


cdef int _make_defaults() except -1:
    """One per device. A driver that was replaced keeps those of the devices that it still has."""
    global _defaults_epoch
    cdef Generator made
    while len(_defaults) < _state.device_total:
        made = Generator.__new__(Generator)
        made.device = device_of(<int>len(_defaults))
        made.philox = PhiloxState.__new__(PhiloxState)
        made.philox.seed = random_seed(53)
        _defaults.append(made)
    del _defaults[_state.device_total:]
    _defaults_epoch = _state.epoch
    return 0


cdef Generator default_cuda(int device):
    if _defaults_epoch != _state.epoch or device >= len(_defaults):
        _state.require_initialized()
        _make_defaults()
    return <Generator>_defaults[device]


def default_cuda_generators():
    """The default generator of each CUDA device; none before CUDA is initialised."""
    if _state.device_total == 0:
        return ()
    if _defaults_epoch != _state.epoch:
        _make_defaults()
    return tuple(_defaults)


cdef Generator choose(object generator, int device):
    cdef Generator given
    if generator is None:
        return <Generator>default_generator if device < 0 else default_cuda(device)
    if not isinstance(generator, Generator):
        raise TypeError(f"argument 'generator' must be torch.Generator, not {type(generator).__name__}")
    given = <Generator>generator
    if (given.philox is None) != (device < 0):
        wanted = "cpu" if device < 0 else "cuda"
        raise RuntimeError(
            f"Expected a '{wanted}' device type for generator but found '{given.device.type}'")
    return given
