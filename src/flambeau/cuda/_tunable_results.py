# SPDX-License-Identifier: Apache-2.0
"""What was found: in memory, in the results file, and the list of products still to be tuned."""

from __future__ import annotations

import os
import tempfile
import threading
import warnings
from pathlib import Path
from typing import NamedTuple

from flambeau.cuda import _tunable_keys as keys
from flambeau.cuda._tunable_settings import RESULTS, say, settings

__all__ = ["DEFAULT", "Entry", "Results", "numbered", "results", "validators", "write_whole"]

DEFAULT = "Default"


class Entry(NamedTuple):
    """One line: what was found for a product.

    Parameters
    ----------
    solution
        An algorithm's name, or ``"Default"``.
    milliseconds
        Its mean time; None if the line has none.
    """

    solution: str
    milliseconds: float | None


def numbered(name: str, device: int) -> str:
    """A file name with a device's number: for ``%d``, else before the last dot, else at the end."""
    if "%d" in name:
        return name.replace("%d", str(device))
    return _inserted(name, device)


def _inserted(name: str, device: int) -> str:
    path = Path(name)
    if "." not in path.name:
        return f"{name}{device}"
    stem, _, ending = name.rpartition(".")
    return f"{stem}{device}.{ending}"


def validators() -> tuple[tuple[str, str], ...]:
    """What a results file must have been made with: versions and the kind of GPU."""
    from flambeau import __version__, driver
    from flambeau.runtime import _cuda_device, _state

    return (
        ("FLAMBEAU_VERSION", __version__),
        ("CUDA_DEVICE", _cuda_device.name(_state.current_device())),
        ("CUBLASLT_VERSION", driver.current().libraries.blas.version()),
    )


class Results:
    """The entries by operation and parameters, and the files behind them."""

    def __init__(self) -> None:
        self._entries: dict[tuple[str, str], Entry] = {}
        self._untuned: set[tuple[str, str]] = set()
        self._untuned_known = False
        self._filename = ""
        self._tried_file = False
        self.lock = threading.RLock()

    # -- entries

    def find(self, key: tuple[str, str]) -> Entry | None:
        """The entry of exactly this product."""
        return self._entries.get(key)

    def find_wild(self, key: tuple[str, str]) -> Entry | None:
        """An entry with open dimensions that this product fits."""
        operation, parameters = key
        for (of, pattern), entry in self._entries.items():
            if of == operation and "*" in pattern and keys.matches(pattern, parameters):
                return entry
        return None

    def add(self, key: tuple[str, str], entry: Entry, log: str = "") -> None:
        """Keep an entry and, unless products are only recorded, append it to the file."""
        with self.lock:
            self._entries[key] = entry
            if not settings.get("record_untuned"):
                time = "" if entry.milliseconds is None else f",{entry.milliseconds:.6g}"
                note = f",BLAS_PARAMS: {log}" if log else ""
                self._append(f"{key[0]},{key[1]},{entry.solution}{time}{note}\n")

    def all(self) -> tuple[tuple[str, str, str, float], ...]:
        """All entries, as `get_results` gives them."""
        return tuple(
            (*key, entry.solution, entry.milliseconds or 0.0)
            for key, entry in self._entries.items()
        )

    # -- the results file

    def filename(self, device: int) -> str:
        """The name of the file, settled at first use."""
        if not self._filename:
            self._filename = numbered(settings.get("filename") or RESULTS, device)
        return self._filename

    def settled_filename(self) -> str:
        """The name as it is so far, ``""`` before first use."""
        return self._filename

    def set_filename(self, name: str, device: int | None) -> None:
        """Use another file, with a device's number in its name unless that is None."""
        if settings.is_fixed("filename"):
            return
        self._filename = name if device is None else numbered(name, device)
        self._tried_file = False

    def load_once(self, device: int) -> None:
        """Read the file, if there is one, before the first product is looked up."""
        with self.lock:
            if not self._tried_file:
                self._tried_file = True
                if Path(self.filename(device)).is_file():
                    self.read(self.filename(device))

    def read(self, name: str) -> bool:
        """Take in a file's entries; those that are known stay.

        Returns
        -------
        bool
            False if there is no such file, or if it was made with something else.
        """
        try:
            text = Path(name).read_text(encoding="utf-8")
        except FileNotFoundError:
            say(1, f"{name} does not exist")
            return False
        rows = [line.split(",") for line in text.splitlines() if line.strip()]
        stated = {
            row[1]: ",".join(row[2:]) for row in rows if row[0] == "Validator" and len(row) > 2
        }
        refused = _why_refused(stated)
        if refused:
            say(1, f"{name} is not used. {refused}")
            warnings.warn(
                f"The TunableOp results in {name} are not used. {refused} New results go to that "
                f"file; the old ones are kept as {name}.refused.",
                UserWarning,
                stacklevel=2,
            )
            os.replace(name, f"{name}.refused")
            return False
        for row in rows:
            if row[0] != "Validator" and len(row) >= 3:
                self._entries.setdefault((row[0], row[1]), Entry(row[2], _time(row)))
        return True

    def _append(self, line: str) -> None:
        from flambeau.runtime import _state

        name = self.filename(_state.current_device())
        path = Path(name)
        if not path.is_file() or not path.stat().st_size:
            stated = "".join(f"Validator,{key},{value}\n" for key, value in validators())
            if _made_whole(path, stated + line):
                return
        # One write at the end of the file: lines of several processes do not mix.
        descriptor = os.open(name, os.O_WRONLY | os.O_APPEND)
        try:
            os.write(descriptor, line.encode())
        finally:
            os.close(descriptor)

    # -- the list of products to be tuned

    def record(self, key: tuple[str, str], device: int, log: str = "") -> None:
        """Append a product to the list of a device, once."""
        with self.lock:
            name = _inserted(settings.get("untuned_filename"), device)
            if not self._untuned_known and Path(name).is_file():
                lines = Path(name).read_text(encoding="utf-8").splitlines()
                self._untuned.update(
                    (p[0], p[1]) for p in (x.split(",") for x in lines) if len(p) > 1
                )
            self._untuned_known = True
            if key in self._untuned:
                return
            self._untuned.add(key)
            note = f",BLAS_PARAMS: {log}" if log else ""
            with open(name, "a", encoding="utf-8") as file:
                file.write(f"{key[0]},{key[1]}{note}\n")

    def reset(self) -> None:
        """Forget everything; for tests."""
        self.__init__()  # type: ignore[misc]


def _time(row: list[str]) -> float | None:
    try:
        return float(row[3])
    except (IndexError, ValueError):
        return None


def _why_refused(stated: dict[str, str]) -> str:
    wanted = dict(validators())
    for key, value in stated.items():
        if key not in wanted:
            return f"Unmatched validator: {key} is {value} in the file, and unknown here."
        if wanted[key] != value:
            return f"Failed validator: {key} is {value} in the file, and {wanted[key]} here."
    for key in wanted:
        if key not in stated:
            return f"Unmatched validator: the file does not say its {key}."
    return ""


def _temporary(path: Path, text: str) -> str:
    """A file beside `path` with this text; its name."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".tmp")
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(name, 0o644)
    return name


def write_whole(path: Path, text: str) -> None:
    """Write a file of which no reader sees a part."""
    os.replace(_temporary(path, text), path)


def _made_whole(path: Path, text: str) -> bool:
    """Make a file that is there whole or not at all; False if another process was quicker."""
    if path.is_file() and not path.stat().st_size:
        write_whole(path, text)
        return True
    temporary = _temporary(path, text)
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    except OSError:  # a file system without links
        os.replace(temporary, path)
    finally:
        Path(temporary).unlink(missing_ok=True)
    return True


results = Results()
