"""Fingerprints of the data and custom classes of a stored study."""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, Protocol, TypedDict

from torch import nn

from fallow.core.names import Classes
from fallow.core.refusal import explain_errors
from fallow.data import Dataset
from fallow.models.custom import Template
from fallow.storage.errors import StorageError
from fallow.storage.files import only_one, raw, write_json
from fallow.study.preparation import open_study
from fallow.study.study_run import Setup, StudyRun

NAME = "objects.json"


class InputDigests(TypedDict):
    """Contents of the file: digest of the data, and digests of custom classes by name."""

    data: str | None
    classes: dict[str, str]


def open_study_folder(
    setup: Setup, cells: Sequence[StudyRun], command: str, classes: Classes
) -> None:
    """Create the folder of a study, or resume the study in it.

    Finished runs are not repeated.  Different data under the same name, or a class edited since, would
    therefore mix with old results.  Raises ValueError for both, and for different settings.
    """
    path = setup.out / NAME
    old = _read(path)
    now: InputDigests = {"data": None, "classes": dict(old["classes"])}
    if setup.dataset is not None:
        now["data"] = digest_of_rows(setup.dataset)
        if old["data"] not in (None, now["data"]):
            raise ValueError(
                f"{setup.out} was started with other data under the name "
                f"{setup.dataset.name!r}; choose another folder with out=, or give the "
                "data another name="
            )
    for name, cls in classes.items():
        now["classes"][name] = digest_of_class(cls)
        if old["classes"].get(name, now["classes"][name]) != now["classes"][name]:
            raise ValueError(
                f"{name.rpartition(':')[2]} has been edited since {setup.out} was started; choose "
                "another folder with out=, or rename the class"
            )
    open_study(setup, cells, command, resume=True)
    if now != old:
        with only_one(setup.out / "study.lock"):
            write_json(path, now)


def _read(path: Path) -> InputDigests:
    if not path.exists():
        return {"data": None, "classes": {}}
    with explain_errors(
        f"{path} is damaged (",
        after="): choose another folder",
        of=(ValueError, KeyError, TypeError),
        to=StorageError,
    ):
        result = json.loads(path.read_bytes())
        return {"data": result["data"], "classes": dict(result["classes"])}


def digest_of_rows(dataset: Dataset) -> str:
    """Return a digest of the examples, labels, test set, columns, sites and groups of a dataset."""
    names = (dataset.classes, dataset.columns, dataset.site_names)
    h = hashlib.blake2b(repr(names).encode(), digest_size=16)
    parts = (dataset.x, dataset.y, dataset.x_test, dataset.y_test)
    divisions = (dataset.sites, dataset.sites_test, dataset.groups, dataset.groups_test)
    for part in (*parts, *divisions):
        h.update(b"part")
        if part is not None:
            h.update(repr(tuple(part.shape)).encode())
            h.update(raw(part.contiguous()))
    return h.hexdigest()


def digest_of_class(value: Callable[..., Any]) -> str:
    """Return a digest of a class or function that depends on its code, not on its location."""
    h = hashlib.blake2b(digest_size=16)
    _add(h, value)
    return h.hexdigest()


def _add(h: _Hash, item: object) -> None:
    """Add the contents of a class, a function or a module to the digest."""
    if isinstance(item, Template):
        _add_module(h, item.module, is_redrawn=True)
    elif isinstance(item, nn.Module):
        _add_module(h, item, is_redrawn=False)
    elif isinstance(item, partial):
        _add(h, item.func)
        for value in (*item.args, *sorted(item.keywords.items())):
            _add(h, value)
    elif isinstance(item, type):
        _add_class(h, item)
    elif isinstance(item, FunctionType):
        _add_code(h, item.__code__)
        for value in (*(item.__defaults__ or ()), *(item.__closure__ or ())):
            _add(h, getattr(value, "cell_contents", value))
    elif isinstance(item, tuple):
        for value in item:
            _add(h, value)
    elif isinstance(item, PLAIN):
        h.update(repr(item).encode())


def _add_module(h: _Hash, module: nn.Module, *, is_redrawn: bool) -> None:
    """Add the layers of a module, their classes and the initial weights to the digest."""
    h.update(repr(module).encode())
    for cls in dict.fromkeys(type(part) for part in module.modules()):
        _add_class(h, cls)
    for name, parameter in module.named_parameters():
        if not (is_redrawn and parameter.requires_grad):
            h.update(name.encode())
            h.update(raw(parameter.detach().cpu().contiguous()))


def _add_class(h: _Hash, cls: type[object]) -> None:
    for base in inspect.getmro(cls):
        if base.__module__.startswith(("fallow.", "torch.", "builtins")) or base is object:
            continue
        for name, value in sorted(vars(base).items()):
            function = inspect.unwrap(getattr(value, "__func__", value))
            code = getattr(function, "__code__", None)
            # Generated methods of a dataclass have no source and follow from its fields.
            if isinstance(code, CodeType):
                if name in WRITTEN and code.co_filename in (
                    "<string>",
                    dataclasses.__file__,
                ):
                    continue
                h.update(name.encode())
                _add_code(h, code)
            elif name not in PLACES and isinstance(value, PLAIN):
                h.update(repr((name, value)).encode())
        h.update(repr(sorted(inspect.get_annotations(base))).encode())


WRITTEN = ("__init__", "__repr__", "__eq__", "__hash__", "__setattr__", "__delattr__")
PLACES = (
    "__doc__",
    "__firstlineno__",
    "__module__",
    "__qualname__",
    "__static_attributes__",
)
"""Attributes of a class that describe its location, not its behavior."""

PLAIN = (int, float, str, bool, tuple, type(None))
"""Types of values that are completely described by their text."""


class _Hash(Protocol):
    """Hash object of `hashlib`."""

    def update(self, data: bytes | memoryview, /) -> None: ...


def _add_code(h: _Hash, code: CodeType) -> None:
    h.update(code.co_code)
    h.update(repr((code.co_names, code.co_varnames)).encode())
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            _add_code(h, constant)
        else:
            h.update(repr(constant).encode())
