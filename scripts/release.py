"""Build the packages of a release, test them in an empty environment, and stop before anything is sent.

    python scripts/release.py            # `make release`

It goes through a list and prints each point as it is found: the checkout is clean; version,
CITATION.cff and CHANGELOG.md agree; sdist and wheel are built (the wheel from the sdist); `twine
check` passes; the core is installed with all it needs into an empty environment, as at a site,
then the rest of Fallow; demo, compare and predict run there far from the source tree. This is done
with each supported version of Python that is installed. Files and their SHA-256 are left in dist/.
What remains is printed: the tag and the upload are a person's to do.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import runpy
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
BESIDE = (
    "packages/fallow",
    *sorted(f"integrations/{folder.name}" for folder in ROOT.glob("integrations/*")),
    "studies/fallow-papers",
)
"""Distributions beside the core; the first adds what studies and reports need."""
CONSTRAINTS = ROOT / "constraints.txt"
BUILD = (
    "import sys; from setuptools import build_meta; build_meta.build_{kind}(sys.argv[1])"
)
VERSIONS = ("3.11", "3.12", "3.13")
SMALL = ("--set", "rounds=1", "--set", "cycles=1", "--set", "bounds=false")


class NotReadyError(Exception):
    """A point of the list that does not hold; its text says what to do."""


def main() -> None:
    """Go through the list; exit code 1 at the first point that does not hold."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument(
        "--rehearse",
        action="store_true",
        help="also for a version that is none yet: skip the points about tag and changelog",
    )
    options.add_argument(
        "--here",
        action="store_true",
        help="take the packages of this environment instead of installing them anew",
    )
    chosen = options.parse_args()
    version = read_version()
    try:
        for point in check_texts(version, rehearse=chosen.rehearse):
            notify(point)
        sdist, wheel, others = build_packages()
        built = [sdist, wheel, *others]
        notify(f"built {', '.join(file.name for file in built)}")
        check_descriptions(*built)
        notify("twine check passed")
        for python in find_pythons(here=chosen.here):
            for point in try_wheel(python, wheel, others, here=chosen.here):
                notify(point)
    except NotReadyError as error:
        sys.exit(f"not ready: {error}")
    write_sums(*built)
    sys.stdout.write(
        f"\nIn {DIST.name}/: sdist, wheels and SHA256SUMS.  Nothing was sent.  What remains is yours:\n"
        f"  git tag -s v{version} -m 'Fallow {version}'\n"
        f"  git push origin v{version}      # the hosted workflow builds, tries and publishes it\n"
    )


def notify(point: str) -> None:
    """One point of the list that holds."""
    sys.stdout.write(f"  ok  {point}\n")
    sys.stdout.flush()


def read_version() -> str:
    """The version of the core, which the other distributions must name too."""
    declared = runpy.run_path(str(ROOT / "src" / "fallow" / "core" / "version.py"))
    return str(declared["__version__"])


def check_texts(version: str, rehearse: bool) -> Iterator[str]:
    """Check version, changelog and tag."""
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    if f"\nversion: {version}\n" not in citation:
        raise NotReadyError(f"CITATION.cff does not say 'version: {version}'")
    yield f"CITATION.cff says {version}"
    if rehearse:
        return
    changed = output("git", "status", "--porcelain")
    if changed:
        raise NotReadyError(f"the checkout has changes; commit or stash them:\n{changed}")
    yield "the checkout is clean"
    if "dev" in version:
        raise NotReadyError(
            f"{version} is no release: write its number into core/version.py and CITATION.cff, "
            "or rehearse with --rehearse"
        )
    log = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    if f"\n## {version} " not in log:
        raise NotReadyError(
            f"CHANGELOG.md has no '## {version} (date)'; rename '## Unreleased' and begin another"
        )
    yield f"CHANGELOG.md has a part about {version}"
    tag = f"v{version}"
    tagged = output("git", "tag", "--list", tag)
    if tagged and tag not in output("git", "tag", "--points-at", "HEAD").split():
        raise NotReadyError(f"the tag {tag} is there already, on another commit")
    yield f"no other commit is tagged {tag}"


def build_packages() -> tuple[Path, Path, list[Path]]:
    """The sdist of what git tracks, the wheel of what the sdist holds, and those of `BESIDE`."""
    shutil.rmtree(DIST, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        tracked = output("git", "ls-files", "-z").split("\0")
        source = path / "source"
        for name in filter(None, tracked):
            target = source / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target)
        sdist = build("sdist", source)
        with tarfile.open(sdist) as archive:
            archive.extractall(path / "unpacked", filter="data")
        (unpacked,) = (path / "unpacked").iterdir()
        wheel = build("wheel", unpacked)
        others = [build("wheel", source / folder) for folder in BESIDE]
    return sdist, wheel, others


def build(kind: str, source: Path) -> Path:
    """Build with the pinned setuptools of this environment, into dist/."""
    DIST.mkdir(exist_ok=True)
    before = set(DIST.iterdir())
    call([sys.executable, "-c", BUILD.format(kind=kind), str(DIST)], folder=source)
    (built,) = set(DIST.iterdir()) - before
    return built


def check_descriptions(*files: Path) -> None:
    """Would the index show the description?  twine lives among the tools."""
    twine = shutil.which("twine", path=str(ROOT / ".venv-tools" / "bin"))
    if twine is None:
        raise NotReadyError("twine is missing: run it as `make release`")
    call([twine, "check", "--strict", *map(str, files)], folder=ROOT)


def find_pythons(*, here: bool) -> Iterator[str]:
    """Return the interpreters of all supported versions, and report the missing ones."""
    if here:
        yield sys.executable
        return
    for version in VERSIONS:
        python = shutil.which(f"python{version}")
        # Debian's Python has a venv that lacks ensurepip, unless python3-venv is installed
        command = [f"python{version}", "-c", "import ensurepip, venv"]
        if (
            python
            and subprocess.run(command, capture_output=True, check=False).returncode == 0
        ):
            yield python
        else:
            sys.stdout.write(
                f"  --  Python {version} was not found here, so it is not tried\n"
            )


def try_wheel(
    python: str, wheel: Path, others: Sequence[Path], here: bool
) -> Iterator[str]:
    """Install it into an empty environment, and use it where no source tree is."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        environment = path / "environment"
        call([python, "-m", "venv", str(environment)], folder=path)
        python = str(environment / "bin" / "python")
        install = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        full, *others = others
        add_others = [*install, "--no-deps", *map(str, others)]
        if here:
            share_packages(environment)
            call(add_others, folder=path)  # the shared environment announces them
        else:
            install += ["-c", str(CONSTRAINTS)]
        version = output(python, "--version")
        fallow = str(environment / "bin" / "fallow")
        for file in (wheel, full):
            alone = ["--no-deps"] if here else []
            call([*install, *alone, str(file)], folder=path)
            call([fallow, "algorithms"], folder=path)
            name = file.name.partition("-")[0].replace("_", "-")
            yield f"{name} is installed into an empty environment with {version}"
            if not here:
                (packages,) = environment.glob("lib/python*/site-packages")
                own, needed = measure_install(packages, name)
                yield f"it has {own:.1f} MB, and its dependencies beside PyTorch {needed:.0f} MB"
        work = path / "work"
        work.mkdir()
        call([fallow, "new", "begin"], folder=work)
        begin = work / "begin"
        call([fallow, "compare", "study.toml", "--seeds", "1", *SMALL], folder=begin)
        call([fallow, "run", "study.toml", *SMALL, "--out", "one"], folder=begin)
        call([fallow, "predict", "one", "rows.csv"], folder=begin)
        yield "new, compare, run and predict work there"
        call([fallow, "demo", "--out", "demo"], folder=work)
        yield "the demo works there"
        call(add_others, folder=path)
        modules = ", ".join(file.name.partition("-")[0] for file in others)
        call([python, "-c", f"import {modules}"], folder=path)
        yield f"{modules} can be imported there"
        call([fallow, "compare", "dpfl/digits-mini", "--dry-run"], folder=work)
        yield "configurations of papers are found there"


def measure_install(packages: Path, name: str) -> tuple[float, float]:
    """MB of a distribution's own files, and of all packages that it needs and PyTorch does not.

    packages: a folder ``site-packages``.
    """
    install: dict[str, metadata.Distribution] = {}
    for item in metadata.distributions(path=[str(packages)]):
        install[canonicalize_name(item.metadata["Name"])] = item
    of_torch = collect_needs("torch", install)
    needed = collect_needs(name, install) - of_torch - {name}
    megabytes = [count_megabytes(install[name]) for name in sorted(needed)]
    return count_megabytes(install[name]), sum(megabytes)


def collect_needs(name: str, installed: Mapping[str, metadata.Distribution]) -> set[str]:
    """A package and all that it needs, without extras."""
    needs: set[str] = set()
    waiting = [name]
    while waiting:
        package = canonicalize_name(waiting.pop())
        if package in needs or package not in installed:
            continue
        needs.add(package)
        for text in installed[package].requires or []:
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                waiting.append(requirement.name)
    return needs


def count_megabytes(package: metadata.Distribution) -> float:
    """Return the size of a package's files, in 10^6 bytes."""
    paths = [Path(str(file.locate())) for file in package.files or []]
    return sum(path.stat().st_size for path in paths if path.is_file()) / 1e6


def share_packages(environment: Path) -> None:
    """Let an environment find the packages of this one, but for Fallow itself."""
    (mine,) = {path for path in sys.path if path.endswith("site-packages")}
    (theirs,) = environment.glob("lib/python*/site-packages")
    (theirs / "shared.pth").write_text(mine + "\n", encoding="utf-8")


def write_sums(*files: Path) -> None:
    """SHA256SUMS beside the packages."""
    lines = [
        f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files
    ]
    (DIST / "SHA256SUMS").write_text("".join(lines), encoding="utf-8")


def output(*command: str) -> str:
    """Return the output of a command of this repository."""
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def call(command: Sequence[str], folder: Path) -> None:
    """Run a command; its own words where it fails.  PYTHONPATH would bring the source tree along."""
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        command, cwd=folder, env=clean, check=False, capture_output=True, text=True
    )
    if done.returncode != 0:
        raise NotReadyError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")


if __name__ == "__main__":
    main()
