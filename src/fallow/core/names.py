"""Names of classes: policies, spelling, and the custom classes of a study.

An experiment configuration names classes: those of Fallow ("entropy"), or others as
``module:Class``.  Importing a module runs it, so a name in a received file must not import
anything.  A `NamePolicy` determines which names can be resolved:

* `BUILT_IN`: the names that are part of Fallow.
* ``NamePolicy(allowed={"my-methods": "sha256:..."})``: in addition, classes of installed
  distributions whose code has been reviewed on this machine.  The digest covers the installed
  files, so different code under the same name is rejected.
* `OWN`: every module that Python can import, for a user's own configurations and Python code.

`check_name` reads files only; nothing is imported before `load_class`.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, is_dataclass
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any

from fallow.core.source_imports import import_from_source

OWN_MODULE = re.compile(r"fallow\.\w+")
"""Modules of Fallow whose exported classes are named with their module."""

NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True)
class NamePolicy:
    """Policy for names of classes.

    any_module: every module that Python can import.  allowed: installed distributions with their
    digests, as returned by `distribution_digest`.
    """

    any_module: bool = False
    allowed: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for distribution, digest in self.allowed.items():
            if not DIGEST.fullmatch(str(digest)):
                raise ValueError(
                    f"allow.{distribution} is {digest!r:.80}; give the digest of the installed "
                    'distribution, "sha256:" and 64 hexadecimal digits'
                )


BUILT_IN = NamePolicy()
OWN = NamePolicy(any_module=True)


@dataclass(frozen=True)
class ClassKind:
    """Requirements for a class that a received file may name.

    is_method: a dataclass with a `Contract`.  base: function that returns the required base class,
    which is imported when a class is checked.  members: required functions.  is_function: whether a
    plain function of the user can define one.  group: group of entry points by which distributions
    add such classes, or None (`fallow.core.extensions`).
    """

    what: str
    is_method: bool = False
    base: Callable[[], type] | None = None
    members: tuple[str, ...] = ()
    is_function: bool = False
    group: str | None = None

    def check(self, name: str, value: Any) -> None:
        """Raise ValueError unless the object is such a class."""
        lacks = self._lacks(value)
        if lacks is not None:
            raise ValueError(f"{name} is no {self.what}: {lacks}")

    def _lacks(self, value: Any) -> str | None:
        from fallow.core.contract import Contract
        from fallow.core.methods import lacking_function

        if not isinstance(value, type):
            return "it is not a class"
        base: type = object
        if self.base is not None:
            base = self.base()
        if not issubclass(value, base):
            return f"it is not a subclass of {base.__module__}.{base.__qualname__}"
        if self.is_method and not is_dataclass(value):
            return "it is not a dataclass"
        if self.is_method and not isinstance(getattr(value, "contract", None), Contract):
            return "it has no contract"
        lacking = lacking_function(value, self.members)
        if lacking is None:
            return None
        return f"it has no function {lacking}"


def _network() -> type:
    from torch import nn  # takes a second

    return nn.Module


TRAINING = ClassKind(
    "training method",
    is_method=True,
    members=("start", "step", "finish", "round", "deploy"),
    group="fallow.training",
)
MODEL = ClassKind("model", base=_network, members=("forward",), group="fallow.models")
CLASS_KINDS: Mapping[str, ClassKind] = {
    "fallow.strategies": ClassKind(
        "query",
        is_method=True,
        members=("query",),
        is_function=True,
        group="fallow.strategies",
    ),
    "fallow.training": TRAINING,
    "fallow.training.personal": TRAINING,
    "fallow.encoders": ClassKind(
        "encoder",
        is_method=True,
        members=("width", "fit", "encode"),
        group="fallow.encoders",
    ),
    "fallow.models.networks": MODEL,
    "fallow.data.partition.partitions": ClassKind(
        "partition", members=("split",), group="fallow.partitions"
    ),
    "fallow.engine.executors": ClassKind("executor", members=("build", "can_train", "fit")),
}
"""Required kind of a class, by the package that it replaces."""


# -- what is installed ------------------------------------------------------------------------


def installed_files(distribution: str) -> dict[str, Path]:
    """Return the files of an installed distribution, by name.

    Files that differ between machines are omitted: metadata of the installer, scripts, and compiled
    files with a source, which never run (`import_from_source`).  Raises ValueError if the
    distribution is not installed or if its files are unknown.
    """
    try:
        listed = importlib.metadata.distribution(distribution).files
    except (importlib.metadata.PackageNotFoundError, ValueError) as error:
        raise ValueError(
            f"{distribution!r} is not installed here; ask the author of the "
            "configuration for its source"
        ) from error
    result: dict[str, Path] = {}
    for file in listed or ():
        path = Path(str(file.locate()))
        parts = PurePosixPath(file).parts
        is_noted = parts[0].endswith((".dist-info", ".egg-info"))
        if is_noted or ".." in parts or PurePosixPath(file).is_absolute():
            continue
        if "__pycache__" not in parts and path.is_file():
            result[PurePosixPath(file).as_posix()] = path
    if not result:
        raise ValueError(
            f"the files of {distribution!r} are unknown here; install it from a wheel, "
            "not as 'editable'"
        )
    return result


def distribution_digest(distribution: str) -> str:
    """Return ``sha256:`` and 64 hexadecimal digits over names and contents of installed files."""
    total = hashlib.sha256()
    for name, path in sorted(installed_files(distribution).items()):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        total.update(f"{name}\0{content}\n".encode())
    return f"sha256:{total.hexdigest()}"


@dataclass(frozen=True)
class Distribution:
    """Version and digest of an installed distribution, as returned by `find_distribution`."""

    version: str
    digest: str

    def __str__(self) -> str:
        return f"{self.version} ({self.digest})"


def find_distribution(name: str) -> Distribution:
    """Return version and digest of an installed distribution.

    Raises ValueError as `installed_files`.
    """
    digest = distribution_digest(name)
    return Distribution(importlib.metadata.version(name), digest)


def distribution_of(module: str) -> str | None:
    """Return the installed distribution with the file of a module, or None."""
    top = re.escape(module.partition(".")[0])
    listed = re.compile(rf"^{top}(\.py,|/)", re.MULTILINE)
    for installed in importlib.metadata.distributions():
        # the text is searched first, because parsing every list of files takes seconds
        if listed.search(installed.read_text("RECORD") or "") is None:
            continue
        distribution = installed.metadata["Name"]
        try:
            files = installed_files(distribution)
        except ValueError:
            continue
        if _file_of(module, files) is not None:
            return distribution
    return None


def _file_of(module: str, files: Mapping[str, Path]) -> Path | None:
    """Return the file of a module in a distribution, with all of its parent packages."""
    steps = module.split(".")
    value = None
    for depth in range(1, len(steps) + 1):
        path = "/".join(steps[:depth])
        value = files.get(f"{path}/__init__.py")
        if value is None and depth == len(steps):
            value = files.get(f"{path}.py")
        if value is None:
            return None
    return value


def _allowing(module: str, policy: NamePolicy) -> Path | None:
    """Return the file of a module of an allowed distribution; None for any other module.

    Raises ValueError if the distribution differs from the allowed one.
    """
    for distribution, agreed in policy.allowed.items():
        files = installed_files(distribution)
        file = _file_of(module, files)
        if file is None:
            continue
        digest = distribution_digest(distribution)
        if digest != agreed:
            raise ValueError(
                f"the installed {distribution} has the digest {digest} and {agreed} is "
                "allowed: its code has changed; review it, and if you trust it, write "
                "the new digest under [allow] in site.toml"
            )
        top = find_spec(module.partition(".")[0])  # without a dot: nothing is imported
        origin = None
        if top is not None:
            origin = top.origin
        if origin is None or not _is_among(Path(origin), distribution):
            raise ValueError(
                f"{module} would be loaded from {origin}, which is not a file of "
                f"{distribution}: another module with this name comes first in the import "
                "path"
            )
        import_from_source(files)
        return file
    return None


def _is_among(file: Path, distribution: str) -> bool:
    return file.resolve() in {p.resolve() for p in installed_files(distribution).values()}


# -- the gate ---------------------------------------------------------------------------------


def check_name(name: str, policy: NamePolicy) -> None:
    """Raise ValueError for a name that ``policy`` does not allow.  Nothing is imported.

    >>> check_name("entropy", BUILT_IN)
    >>> check_name("subprocess:Popen", BUILT_IN)
    Traceback (most recent call last):
    ValueError: 'subprocess:Popen' names code that is part of Python, and not an algorithm of Fallow
    """
    if ":" not in name:
        return
    module = name.partition(":")[0]
    if not NAME.fullmatch(name):
        raise ValueError(
            f"{name!r:.80} is not of the form module:Class or name:parameter=value, such as "
            "'dirichlet:alpha=0.3'"
        )
    if policy.any_module:
        return
    if OWN_MODULE.fullmatch(module):
        return
    if module.partition(".")[0] in sys.stdlib_module_names:
        raise ValueError(
            f"{name!r} names code that is part of Python, and not an algorithm of Fallow"
        )
    if _allowing(module, policy) is None:
        raise ValueError(
            f"{name!r} names code that is not part of Fallow: {_way_out(module)}"
        )


def _way_out(module: str) -> str:
    """Return a hint for a module that is not allowed."""
    result = distribution_of(module)
    if result is None:
        return "no installed distribution has it; install its package and review its code"
    return (
        f"it is part of the installed distribution {result}; review its code, and if you "
        f'trust it, write {result} = "{distribution_digest(result)}" under [allow] in '
        "site.toml (when a site's folder is created: --allow "
        f"{result}={distribution_digest(result)})"
    )


def pin_names(names: list[str]) -> NamePolicy:
    """Return a policy for the current code of ``names``, and no other code.

    It is for names that a user has selected.  Raises ValueError for a class without an installed
    distribution.
    """
    allowed: dict[str, str] = {}
    for name in names:
        module = name.partition(":")[0]
        if ":" not in name or OWN_MODULE.fullmatch(module):
            continue
        result = distribution_of(module)
        if result is None:
            raise ValueError(
                f"{name!r} does not belong to an installed distribution, so sites cannot have "
                f"it; put its module into a package and install that (pip install .)"
            )
        allowed[result] = distribution_digest(result)
    return NamePolicy(allowed=allowed)


def load_class(name: str, policy: NamePolicy, kind: ClassKind | None) -> Any:
    """Return the object that ``module:Class`` names.

    Raises ValueError for a name that ``policy`` does not allow, for a missing one, and, unless
    every module is allowed, for an object that is not a class of the ``kind``.
    """
    check_name(name, policy)
    module, _, attribute = name.partition(":")
    expected = None
    if not policy.any_module:
        expected = _allowing(module, policy)
    try:
        loaded = importlib.import_module(module)
        result = getattr(loaded, attribute)
    except (ImportError, AttributeError) as error:
        hint = ""
        if isinstance(error, ModuleNotFoundError) and error.name == module:
            hint = (
                f"; write a custom class as module:Class, with {module}.py in the current "
                "folder or installed, and a setting as name:setting=value"
            )
        raise ValueError(f"{name!r} could not be loaded: {error}{hint}") from error
    if policy.any_module:
        # Never for a received name: a function does not declare its purpose.
        if kind is not None and kind.is_function and inspect.isfunction(result):
            from fallow.core.function_strategy import strategy_class

            return strategy_class(result)
        return result
    is_own = OWN_MODULE.fullmatch(module) is not None
    if is_own and attribute not in getattr(loaded, "__all__", ()):
        raise ValueError(
            f"{name!r} is not a class of {module}; 'fallow algorithms' lists them"
        )
    if kind is None and is_own:
        return result
    if kind is None:
        raise ValueError(f"{name!r} is used where only names of Fallow are allowed")
    kind.check(repr(name), result)
    if result.__module__.partition(".")[0] != module.partition(".")[0]:
        raise ValueError(f"{name!r} is a class of {result.__module__}; use that name")
    at = getattr(loaded, "__file__", None)
    if expected is not None and (at is None or Path(at).resolve() != expected.resolve()):
        raise ValueError(f"{name!r} was loaded from {at} and not from {expected}")
    return result


def spell_class(cls: type[Any]) -> str:
    """Return the name of a class on the command line, like its title if they have the same letters.

    >>> class LeastConfidence: ...
    >>> spell_class(LeastConfidence)
    'least-confidence'
    """
    name = cls.__name__
    title = str(getattr(getattr(cls, "contract", None), "title", ""))
    slug = title.lower().replace(" ", "-")
    if slug.replace("-", "") == name.lower():
        return slug
    if fed := re.fullmatch("(Fed[A-Z][a-z]+)([A-Z][a-zA-Z]+)", name):
        return "-".join(fed.groups()).lower()
    is_words = re.fullmatch("([A-Z][a-z]{2,})+", name) and not name.startswith("Fed")
    if is_words:
        return re.sub("(?<=[a-z])(?=[A-Z])", "-", name).lower()
    return name.lower()


def summarize(value: Any) -> str:
    """Return the first paragraph of the docstring of a class or function, in one line.

    >>> summarize(summarize)
    'Return the first paragraph of the docstring of a class or function, in one line.'
    """
    paragraph = (inspect.getdoc(value) or "").partition("\n\n")[0]
    return re.sub(r"\s+", " ", paragraph).replace("``", "`")


Classes = Mapping[str, Callable[..., Any]]
"""``"module:Class"`` -> the class itself, or the function that makes a model."""

NOBODYS: Classes = MappingProxyType({})

# Experiment configurations name classes, and a class in a notebook cannot be imported by name.  The
# caller of a study therefore registers its classes while the study runs, in a context variable
# instead of a global table: studies in different threads do not share classes.
_LENT: ContextVar[Classes] = ContextVar("own classes", default=NOBODYS)


@contextmanager
def lend(classes: Classes) -> Iterator[None]:
    """Register classes for `own_class` in this context, in addition to earlier ones.

    >>> with lend({"__main__:Mine": dict}):
    ...     own_class("__main__:Mine")
    <class 'dict'>
    >>> own_class("__main__:Mine") is None
    True
    """
    token = _LENT.set({**_LENT.get(), **classes})
    try:
        yield
    finally:
        _LENT.reset(token)


def own_class(name: str) -> Any:
    """Return the class registered under ``name``, or None.

    Only a simulation registers classes: at a site of a federation this is None for every name.
    """
    return _LENT.get().get(name)
