"""Construction of an object by the name of its class, without a registry."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType
from typing import Any

from fallow.core.extensions import (
    explain_missing,
    find_extension,
    fold_name,
    list_extensions,
    load_extension,
    suggest_network,
)
from fallow.core.kinds import conditions_of, describe_kind, is_of_kind, show_value
from fallow.core.names import (
    BUILT_IN,
    CLASS_KINDS,
    ClassKind,
    NamePolicy,
    load_class,
    own_class,
    spell_class,
)
from fallow.core.refusal import explain_errors
from fallow.core.suggestions import nearest, refuse_settings

Packages = ModuleType | tuple[ModuleType, ...]
"""Packages in which names are looked up; error messages refer to the first one."""


def names(package: Packages) -> dict[str, type[Any]]:
    """Return the concrete classes that a package exports, by class name."""
    return dict(_list_classes(_listed(package)))


@functools.cache
def _list_classes(packages: tuple[ModuleType, ...]) -> dict[str, type[Any]]:
    result: dict[str, type[Any]] = {}
    for item in packages:
        for name in item.__all__:
            exported = getattr(item, name)
            if _is_concrete(exported):
                result[exported.__name__] = exported
    return result


def _listed(package: Packages) -> tuple[ModuleType, ...]:
    if isinstance(package, tuple):
        return package
    return (package,)


def _is_concrete(exported: Any) -> bool:
    """Return whether an object is a class that can be instantiated."""
    if not inspect.isclass(exported) or inspect.isabstract(exported):
        return False
    return not getattr(exported, "_is_protocol", False)


@functools.cache
def _find_exported(package: Packages, folded: str) -> type[Any] | None:
    """Return the class of this name, and import no other one."""
    for item in _listed(package):
        for name in item.__all__:
            if fold_name(name) == folded and _is_concrete(getattr(item, name)):
                result: type[Any] = getattr(item, name)
                return result
    return None


@functools.cache
def _words(package: Packages) -> dict[str, type[Any]]:
    """Return all names of the classes of a package, including aliases of their contracts."""
    exported = names(package)
    known = {fold_name(name): cls for name, cls in exported.items()}
    for cls in exported.values():
        contract = getattr(cls, "contract", None)
        for alias in getattr(contract, "aliases", ()):
            known.setdefault(fold_name(alias), cls)
    return known


def find(package: Packages, name: str, policy: NamePolicy = BUILT_IN, /) -> type[Any]:
    """Find a class by its name or an alias, ignoring case, ``-`` and ``_``.

    A name with a colon, ``module:Class``, refers to a custom class, if ``policy`` allows its code.
    So does the name of an extension (`fallow.core.extensions`).
    """
    kind = _kind_of(package)
    result: type[Any]
    if ":" in name:
        result = load_class(name, policy, kind)
        return result
    built_in = _find_built_in(package, fold_name(name))
    if built_in is not None:
        return built_in
    if kind is None:
        raise ValueError(_explain_unknown(package, name))
    if find_extension(kind, name) is None:
        raise ValueError(explain_missing(kind, name) or _explain_unknown(package, name))
    result = load_extension(kind, name, policy)
    return result


def is_built_in(package: Packages, name: str) -> bool:
    """Return whether a package has a class of this name, without custom classes and extensions."""
    return _find_built_in(package, fold_name(name)) is not None


def _find_built_in(package: Packages, folded: str) -> type[Any] | None:
    """Return a class by its name or an alias; all classes are imported for an alias."""
    return _find_exported(package, folded) or _words(package).get(folded)


def resolve_name(package: Packages, name: str) -> str:
    """Return ``module:Class`` for the name of an extension, and any other name unchanged.

    Nothing is imported.
    """
    kind = _kind_of(package)
    if kind is None or ":" in name or is_built_in(package, name):
        return name
    return find_extension(kind, name) or name


def _kind_of(package: Packages) -> ClassKind | None:
    """Return the required kind of a class; None where no package is looked up."""
    packages = _listed(package)
    if not packages:
        return None
    return CLASS_KINDS.get(packages[0].__name__)


SWAPPED = {
    "fallow.strategies": (
        ("fallow.training", "fallow.training.personal"),
        "a training algorithm, not a query strategy; set training={name}",
    ),
    "fallow.training": (
        ("fallow.strategies",),
        "a query strategy, not a training algorithm; give it as the strategy",
    ),
}
"""Other packages in which an unknown name is looked up, and the sentence if it exists there."""
PLURALS = {
    "fallow.data.partition.before_tail": "partitions",
    "fallow.models.networks": "models",
    "fallow.training": "training algorithms",
}
"""Classes of a package in an error message, if the name of the package is another word."""


def _explain_unknown(package: Packages, name: str) -> str:
    """Return the error message for an unknown name."""
    first = _listed(package)[0].__name__
    others, _ = SWAPPED.get(first, ((), ""))
    is_swapped = any(fold_name(name) in _words(import_module(other)) for other in others)
    written = []
    for cls in names(package).values():
        aliases = getattr(getattr(cls, "contract", None), "aliases", ())
        written += [spell_class(cls), *aliases]
    return explain_unknown(first, name, written, is_swapped=is_swapped)


def explain_unknown(
    package: str, name: str, written: Sequence[str], *, is_swapped: bool = False
) -> str:
    """Return the error message for an unknown name.

    ``written`` are the names of the package.  ``is_swapped``: whether another package has the name
    (`SWAPPED`).
    """
    if is_swapped:
        _, sentence = SWAPPED[package]
        return f"{name!r} is {sentence.format(name=name)}"
    known = [word for word in written if ":" not in word]
    kind_of_class = CLASS_KINDS.get(package)
    if kind_of_class is not None and kind_of_class.group is not None:
        known += list_extensions(kind_of_class.group)
    otherwise = ""
    if package == "fallow.encoders":
        otherwise = suggest_network(name)
    if package == "fallow.strategies":
        otherwise = "'fallow algorithms' lists them"
    hint = nearest(name.lower().replace("_", "-"), known, otherwise)
    kind = PLURALS.get(package, package.rpartition(".")[2])
    return f"{name!r} is not one of the {kind}{hint}"


def build(
    package: Packages, name: str, policy: NamePolicy = BUILT_IN, /, **fields: Any
) -> Any:
    """Instantiate the class ``name`` of a package with these fields.

    ``policy``: names of custom classes that can be resolved.  Raises ValueError with the nearest
    class or field for an unknown one, and for a value of the wrong type.
    """
    cls = own_class(name) or find(package, name, policy)
    if dataclasses.is_dataclass(cls):
        accepted = [field.name for field in dataclasses.fields(cls) if field.init]
    else:  # a network
        accepted = list(inspect.signature(cls).parameters)
    refuse_settings(name, fields, accepted)
    for field, value in fields.items():
        _check_kind(cls, name, field, value)
    with explain_errors(f"{name} cannot be created from {fields}: ", of=TypeError):
        return cls(**fields)


def _check_kind(cls: type[Any], name: str, field: str, value: Any) -> None:
    """Raise ValueError for a value of the wrong plain type; other types check themselves."""
    hint = _find_hint(cls, field)
    if not is_of_kind(value, hint):
        raise ValueError(
            f"{name}'s {field} is {show_value(value)}; it must be {describe_kind(hint)}"
        )


SIMPLE: dict[str, type] = {"bool": bool, "int": int, "float": float, "str": str}


def _find_hint(cls: type[Any], field: str) -> Any:
    """Return the declared type of a field; Any if it is unknown."""
    declared: Any = cls
    if not dataclasses.is_dataclass(cls):  # a network
        declared = cls.__init__
    try:
        return conditions_of(declared).get(field, Any)
    # for type checkers only
    except (
        NameError,
        TypeError,
        AttributeError,
    ):
        written = inspect.get_annotations(cls).get(field)
        return SIMPLE.get(str(written), Any)
