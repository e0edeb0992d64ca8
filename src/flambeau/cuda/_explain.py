# SPDX-License-Identifier: Apache-2.0
"""Why CUDA is not available, and what helps."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from flambeau.cuda import _availability, _visible_devices
from flambeau.driver.errors import DriverNotFoundError, MissingExtraError
from flambeau.driver.status import describe

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["Finding", "explain"]

_OLDEST_BRANCH = 580
_NVIDIA_VENDOR = "0x10de"
_DISPLAY_CLASS = "0x03"
_NO_GPU_NEEDED = (
    "No GPU is needed to try: set FLAMBEAU_VIRTUAL=h200, or use `flambeau run --virtual`."
)
_REMEDIES = {
    46: "Another process holds the GPU in exclusive mode: end it, or `nvidia-smi -c DEFAULT`.",
    100: "If the GPU is split by MIG, create an instance: `nvidia-smi mig -cgi 0 -C`.",
    802: "On machines with NVSwitch, start the service: `systemctl start nvidia-fabricmanager`.",
    803: "The driver was updated while its old kernel module is loaded: restart the machine.",
    804: "Remove the forward-compatibility package (cuda-compat), or update the driver itself.",
    999: "Load the module for unified memory, `modprobe nvidia_uvm`, or restart the machine.",
}


class Finding(NamedTuple):
    """One reason and its remedy.

    Parameters
    ----------
    cause
        What is wrong.
    remedy
        What to do about it.
    """

    cause: str
    remedy: str


@dataclass(frozen=True)
class Machine:
    """What the file system and the environment tell about GPUs, without any driver call."""

    root: Path = Path("/")
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)

    def in_container(self) -> bool:
        """Whether this looks like the inside of a container."""
        marks = (".dockerenv", "run/.containerenv")
        return (
            any((self.root / mark).exists() for mark in marks)
            or "KUBERNETES_SERVICE_HOST" in self.environ
        )

    def has_nvidia_gpu(self) -> bool:
        """Whether a PCI device is a display controller or accelerator by NVIDIA."""
        for device in (self.root / "sys/bus/pci/devices").glob("*"):
            if _line(device / "vendor") == _NVIDIA_VENDOR and _line(device / "class").startswith(
                _DISPLAY_CLASS
            ):
                return True
        return False

    def kernel_module(self) -> str | None:
        """The version of NVIDIA's loaded kernel module, such as ``"580.65.06"``."""
        text = _line(self.root / "proc/driver/nvidia/version")
        found = re.search(r"\b(\d{3,}\.\d+(?:\.\d+)?)\b", text)
        return found[1] if found else None

    def device_nodes(self) -> list[Path]:
        """The nodes that a process opens to use a GPU, as far as they exist."""
        return sorted((self.root / "dev").glob("nvidia[0-9]*")) + [
            node
            for name in ("nvidiactl", "nvidia-uvm")
            if (node := self.root / "dev" / name).exists()
        ]


def explain() -> list[Finding]:
    """Say why `is_available` is False, or why kernels would not run although it is True.

    Looks at the driver, the device nodes and their permissions, the container, the compiler and
    ``CUDA_VISIBLE_DEVICES``. Neither initialises CUDA nor hinders a fork.

    Returns
    -------
    list of Finding
        Pairs of cause and remedy, the most basic first; empty if nothing is wrong.

    Examples
    --------
    >>> import flambeau as torch
    >>> for cause, remedy in torch.cuda.explain():
    ...     print(cause, remedy)
    """
    return list(_findings(Machine()))


def _findings(machine: Machine) -> Iterator[Finding]:
    from flambeau import driver

    try:
        management = driver.current().management
    except DriverNotFoundError as error:
        yield from _no_driver(machine, str(error))
        return
    except MissingExtraError as error:
        yield Finding("A package that virtual GPUs need is not installed.", str(error))
        return
    except ValueError as error:
        asked = machine.environ.get("FLAMBEAU_VIRTUAL")
        yield Finding(
            f"FLAMBEAU_VIRTUAL is {asked!r}, which asks for no virtual GPU: {error}",
            "Write a model, a number of devices or both, such as h200:2; or unset it.",
        )
        return
    if not _availability.is_available():
        try:
            count = management.device_count()
        except DriverNotFoundError as error:
            yield Finding(str(error), _NO_GPU_NEEDED)
            count = 0
        found = list(_nothing_visible(count)) or list(_driver_refuses(machine))
        yield from found
    yield from _no_compiler()


def _no_driver(machine: Machine, error: str) -> Iterator[Finding]:
    module = machine.kernel_module()
    if module is not None and int(module.split(".")[0]) < _OLDEST_BRANCH:
        yield Finding(
            f"The NVIDIA driver is version {module}; flambeau needs {_OLDEST_BRANCH} or newer.",
            "Update it from https://www.nvidia.com/drivers, or with your distribution's packages.",
        )
    elif module is not None:
        yield Finding(
            f"NVIDIA's kernel module {module} is loaded, but its library cannot be used. {error}",
            _container_remedy()
            if machine.in_container()
            else "Install the driver's user-space libraries of the same version.",
        )
        yield from _node_trouble(machine)
    elif machine.in_container():
        yield Finding(
            "This container was started without a GPU: the host's driver is not visible in it.",
            f"{_container_remedy()} {_NO_GPU_NEEDED}",
        )
    elif machine.has_nvidia_gpu():
        yield Finding(
            "This machine has an NVIDIA GPU, but no NVIDIA driver is loaded.",
            f"Install driver branch {_OLDEST_BRANCH} or newer; after an update, restart.",
        )
    else:
        yield Finding("No NVIDIA GPU was found in this machine.", _NO_GPU_NEEDED)


def _container_remedy() -> str:
    return (
        "Start it with `docker run --gpus all` (NVIDIA container toolkit; "
        "NVIDIA_DRIVER_CAPABILITIES must include compute), or request nvidia.com/gpu in Kubernetes."
    )


def _node_trouble(machine: Machine) -> Iterator[Finding]:
    nodes = machine.device_nodes()
    if not any(re.fullmatch(r"nvidia\d+", node.name) for node in nodes):
        yield Finding(
            "There is no device node /dev/nvidia0.",
            _container_remedy()
            if machine.in_container()
            else "Run `nvidia-modprobe -c 0 -u`, or `nvidia-smi` once, as root.",
        )
    closed = [f"/dev/{node.name}" for node in nodes if not os.access(node, os.R_OK | os.W_OK)]
    if closed:
        yield Finding(
            f"This user may not open {', '.join(closed)}.",
            "Add the user to the group that owns them (often `video` or `render`) and log in anew.",
        )


def _nothing_visible(count: int) -> Iterator[Finding]:
    value = _visible_devices.read()
    if count > 0 and value is not None:
        yield Finding(
            f"{_visible_devices.VARIABLE} is {value!r}, which shows none of the machine's {count} "
            f"GPU{'' if count == 1 else 's'}.",
            f"Unset it, or list numbers below {count} or UUIDs that `nvidia-smi -L` prints; the "
            "list ends at the first entry that names no GPU, and a repeated one empties it.",
        )


def _driver_refuses(machine: Machine) -> Iterator[Finding]:
    trouble = list(_node_trouble(machine))
    yield from trouble
    status = _availability.probe().status
    if status:
        text = describe(status)
        yield Finding(
            f"The driver is there and refuses to start: {text.text} ({text.name}, {status}).",
            _REMEDIES.get(status, "See `nvidia-smi` and the kernel's log (`dmesg`)."),
        )
    elif not trouble:
        yield Finding("The driver works and shows no GPU.", _NO_GPU_NEEDED)


def _no_compiler() -> Iterator[Finding]:
    from flambeau.kernels.compile import supported_architectures

    try:
        supported_architectures()
    except MissingExtraError as error:
        yield Finding("Kernels cannot be compiled: NVRTC was not found.", str(error))


def _line(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip().split("\n")[0]
    except OSError:
        return ""
