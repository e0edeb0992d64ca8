# SPDX-License-Identifier: Apache-2.0
"""The compiled part of the build; everything else is in pyproject.toml.

``FLAMBEAU_EXTENSIONS=runtime._tensor,driver._table`` builds only these, for a quick edit cycle;
``FLAMBEAU_BUILD_JOBS=4`` sets how many compilers run at once (default: one a core).
"""

import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

ROOT = Path(__file__).parent
PACKAGE = ROOT / "src" / "flambeau"
COMPILE = ["-O2", "-std=c++17", "-fvisibility=hidden", "-g0", "-Wno-unused-function"]
JOBS = int(os.environ.get("FLAMBEAU_BUILD_JOBS", os.cpu_count() or 1))
DIRECTIVES = {
    "language_level": 3,
    "boundscheck": False,
    "wraparound": False,
    "cdivision": True,
    "initializedcheck": False,
    "embedsignature": True,
    "freethreading_compatible": False,
}


def extensions() -> list[Extension]:
    wanted = os.environ.get("FLAMBEAU_EXTENSIONS")
    names = set(wanted.split(",")) if wanted else None
    found = []
    for source in sorted(PACKAGE.rglob("*.pyx")):
        name = ".".join(source.relative_to(PACKAGE).with_suffix("").parts)
        if names is not None and name not in names:
            continue
        folder = source.parent
        headers = [str(h.relative_to(ROOT)) for h in PACKAGE.rglob("*.hpp")]
        found.append(
            Extension(
                f"flambeau.{name}",
                [str(source.relative_to(ROOT))],
                include_dirs=[str(PACKAGE.parent), str(folder)],
                language="c++",
                extra_compile_args=COMPILE,
                extra_link_args=["-Wl,-s", "-pthread"],
                depends=headers,
            )
        )
    return found


setup(
    ext_modules=cythonize(
        extensions(),
        compiler_directives=DIRECTIVES,
        include_path=[str(PACKAGE.parent)],
        nthreads=JOBS if JOBS > 1 else 0,
        build_dir="build/cython",
    ),
    options={"build_ext": {"parallel": JOBS}},
)
