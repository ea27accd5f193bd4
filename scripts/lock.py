"""Write the lock files: the versions of constraints.txt with the hashes of their files.

    python scripts/lock.py

It asks the package index that uv is set up for, and writes neither its name nor its address.  The
hashes are those of every file that the index has for a version, so they hold for Linux and macOS, on
any processor, with Python 3.11 to 3.13.  PyTorch has a file of its own, because its builds from
elsewhere (for processors without CUDA) are other files under other hashes.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOCK = "requirements.lock"
DEPLOY = "requirements-deploy.lock"
TORCH = "requirements-torch.lock"
WHERE = "Linux and macOS, Python 3.11 to 3.13"
OF_TORCH = ("torch==", "triton==", "cuda-", "nvidia-")
"""Packages that come with PyTorch and for nothing else."""
# `tools` live elsewhere, and so do packages of networks (`timm`, `onnx` and their like), which no
# test needs and which bring hundreds of megabytes
EXTRAS = (
    "dev",
    "cluster",
    "deploy",
    "dicom",
    "excel",
    "privacy",
)
OF_PARTIES = ("deploy", "privacy")
"""Extras of a coordinator and a site, which the image installs with `FULL` and `INTEGRATIONS`."""
FULL = "packages/fallow"
"""Distribution with the requirements of studies and reports, in addition to the core."""
INTEGRATIONS = ("integrations/fallow-flower", "integrations/fallow-nvflare")
EVERYWHERE = (
    " ; (python_full_version < '3.14' and sys_platform == 'darwin')"
    " or (python_full_version < '3.14' and sys_platform == 'linux')"
)
"""Marker that all systems of `[tool.uv]` satisfy; it is removed."""
HEADS = {
    LOCK: f"""\
# Every package that Fallow can install, but for PyTorch, with the hashes of its files:
# {WHERE}.
# Generated from pyproject.toml and constraints.txt by scripts/lock.py; run 'make lock' to update.
# Used by 'make setup-locked': pip install --require-hashes --no-deps -r {LOCK}
""",
    DEPLOY: f"""\
# Packages of a coordinator and a site, except PyTorch, with the hashes of its files: a part of {LOCK}.
# deploy/Containerfile installs it by pip install --require-hashes --no-deps -r {DEPLOY}
""",
    TORCH: f"""\
# PyTorch and the CUDA libraries that it brings on Linux, as the Python Package Index has them:
# {WHERE}.
# Other builds of the same version have other hashes. 'make setup-locked TORCH=any' installs them
# without hash verification.
""",
}


def main() -> None:
    """Write the files anew."""
    parts: dict[str, list[str]] = {LOCK: [], TORCH: []}
    for entry in entries(compiled(EXTRAS)):
        parts[TORCH if entry.startswith(OF_TORCH) else LOCK].append(entry)
    needed = {name_of(entry) for entry in entries(compiled(OF_PARTIES))}
    parts[DEPLOY] = [entry for entry in parts[LOCK] if name_of(entry) in needed]
    for name, blocks in parts.items():
        (ROOT / name).write_text(HEADS[name] + "".join(blocks), encoding="utf-8")
        sys.stdout.write(f"{name}: {len(blocks)} packages\n")


def compiled(extras: Sequence[str]) -> str:
    """Return the requirements of the project with these extras, with hashes, as uv resolves them."""
    with tempfile.TemporaryDirectory() as folder:
        needed = ["setuptools"]
        for name in (FULL, *INTEGRATIONS):
            needed += read_needs(name)
        (Path(folder) / "build.in").write_text("\n".join(needed) + "\n", encoding="utf-8")
        line = [
            *(sys.executable, "-m", "uv", "pip", "compile", "--quiet"),
            *("--universal", "--python-version", "3.11"),
            *(word for extra in extras for word in ("--extra", extra)),
            *("--constraint", "constraints.txt", "--generate-hashes"),
            *("--no-header", "--no-annotate", "--no-emit-index-url"),
            *("pyproject.toml", f"{folder}/build.in"),
        ]
        done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"uv could not resolve the pins of constraints.txt: {done.stderr}")
    return done.stdout


def read_needs(folder: str) -> list[str]:
    """Return what a distribution requires besides Fallow.

    >>> "cryptography>=42" in read_needs("integrations/fallow-flower")
    True
    """
    file = ROOT / folder / "pyproject.toml"
    needed = tomllib.loads(file.read_text(encoding="utf-8"))["project"]["dependencies"]
    return [line for line in needed if not line.startswith("fallow")]


def name_of(entry: str) -> str:
    """Return the package of a requirement.

    >>> name_of("a==1 --hash=sha256:0")
    'a'
    """
    return entry.partition("==")[0]


def entries(text: str) -> list[str]:
    """Requirements with their hashes, one text for each.

    >>> entries("a==1 \\\\\\n    --hash=sha256:0\\nb==2 \\\\\\n    --hash=sha256:1\\n")
    ['a==1 \\\\\\n    --hash=sha256:0\\n', 'b==2 \\\\\\n    --hash=sha256:1\\n']
    """
    blocks = re.findall(r"^[^\s#].*\n(?:[ \t]+--hash.*\n)+", text, re.MULTILINE)
    return [entry.replace(EVERYWHERE, "", 1) for entry in blocks]


if __name__ == "__main__":
    main()
