"""Checks a folder with one source distribution and one wheel: what they hold, and how large they are."""

import sys
import tarfile
import zipfile
from pathlib import Path

MAX_WHEEL_MB = 24  # the demo model is 16 of them
IN_WHEEL = ["__init__.py", "py.typed", "_core.pyi", "data/demo.gguf", "data/LICENSE-NOTE.md"]
IN_SDIST = ["pyproject.toml", "CMakeLists.txt", "README.md", "LICENSE", "CHANGELOG.md", "csrc/bind/module.cpp"]
METADATA = ["Summary", "License-Expression", "License-File", "Requires-Python", "Keywords", "Description-Content-Type"]


def main(folder: Path) -> int:
    faults = []
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as z:
        names = z.namelist()
        faults += [f"{wheel.name}: no strata/{n}" for n in IN_WHEEL if f"strata/{n}" not in names]
        if not any(n.startswith("strata/_core.") and n.endswith(".so") for n in names):
            faults.append(f"{wheel.name}: no extension")
        faults += [f"{wheel.name}: {n} does not belong there" for n in names if not n.startswith(("strata/", "strata_moe-"))]
        metadata = z.read(next(n for n in names if n.endswith(".dist-info/METADATA"))).decode()
        faults += [f"{wheel.name}: no {m} in its metadata" for m in METADATA if f"\n{m}: " not in metadata]
    with tarfile.open(sdist) as t:
        names = [n.partition("/")[2] for n in t.getnames()]
        faults += [f"{sdist.name}: no {n}" for n in IN_SDIST if n not in names]
        faults += [f"{sdist.name}: {n} does not belong there" for n in names if n.startswith(("build/", ".venv", ".git/"))]
    megabytes = wheel.stat().st_size / 1e6
    if megabytes > MAX_WHEEL_MB:
        faults.append(f"{wheel.name}: {megabytes:.1f} MB, more than {MAX_WHEEL_MB}")
    print(f"{wheel.name} {megabytes:.1f} MB, {sdist.name} {sdist.stat().st_size / 1e6:.1f} MB")
    print("\n".join(faults) or "contents as they should be")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
