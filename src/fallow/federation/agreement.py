"""The agreement: one file that the coordinator and every site have, and nothing else decides."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import Tensor

from fallow.core.build import nearest
from fallow.core.types import SiteId
from fallow.data import Dataset, embedded
from fallow.federation.schema import Schema, schema_from
from fallow.federation.toml import duration, recipe_lines, schema_lines, seconds_of, toml_of
from fallow.lab.files import write_whole
from fallow.lab.recipe import Recipe, recipe_from
from fallow.lab.rows import features
from fallow.lab.scale import is_standardised
from fallow.lab.spec import Spec
from fallow.privacy.settings import SMALLEST
from fallow.recipes import find_recipe

KEY = 32  # bytes of an Ed25519 key
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")  # is a file's name on any system


@dataclass(frozen=True)
class Waits:
    """How long the coordinator waits, in seconds, and for how many sites.

    timeout: of one exchange for all sites; then for ``quorum`` of them until ``patience``, after
    which it stops and can be started again.  deadline: what people have for the labels of a cycle.
    These are the coordinator's own: they may change while a study runs, but for ``quorum``.
    """

    timeout: float = 600.0
    quorum: int | None = None  # None: all sites
    patience: float = 604800.0
    deadline: float = 1209600.0

    def __post_init__(self) -> None:
        for name in ("timeout", "patience", "deadline"):
            if not getattr(self, name) > 0:
                raise ValueError(
                    f"federation.{name} is {getattr(self, name)}; it must be above 0 seconds"
                )


@dataclass(frozen=True)
class Agreement:
    """What all parties have agreed on.

    recipe: as `at_sites` makes it.  coordinator: the key by which sites know its orders.  smallest:
    scores over fewer test rows leave no site.
    """

    name: str
    recipe: Recipe
    schema: Schema
    sites: tuple[SiteId, ...]
    coordinator: bytes
    seed: int = 0
    waits: Waits = Waits()
    smallest: int = 5

    def __post_init__(self) -> None:
        for what, name in [("name", self.name), *(("sites", site) for site in self.sites)]:
            if not NAME.fullmatch(name):
                raise ValueError(
                    f"federation.{what}: {name!r} is no name; use 1 to 64 letters, digits, dots, "
                    "dashes and underscores, and begin with a letter or digit"
                )
        if not self.sites:
            raise ValueError("federation.sites names nobody; name one site or more")
        if tuple(sorted(set(self.sites))) != self.sites:
            raise ValueError(
                f"federation.sites is {list(self.sites)}; name each site once, in sorted order"
            )
        if len({site.lower() for site in self.sites}) < len(self.sites):
            raise ValueError(
                f"federation.sites is {list(self.sites)}; two names differ in capitals alone: "
                "rename one, because people and some machines take them for one"
            )
        if len(self.coordinator) != KEY:
            raise ValueError(
                f"federation.coordinator has {len(self.coordinator)} bytes and not {KEY}; copy the "
                "line from the study.toml that the coordinator sent"
            )
        least, most = SMALLEST if self.recipe.privacy.secure_sum else 1, len(self.sites)
        if self.waits.quorum is not None and not least <= self.waits.quorum <= most:
            raise ValueError(
                f"federation.quorum is {self.waits.quorum}; it must be {least} to {most}, the "
                "number of sites"
            )
        for name, smallest in (("seed", 0), ("smallest", 1)):
            if getattr(self, name) < smallest:
                raise ValueError(
                    f"federation.{name} is {getattr(self, name)}; it must be {smallest} or more"
                )

    @cached_property
    def digest(self) -> str:
        """32 hexadecimal digits of all that changes what is computed or revealed; lengths of time
        do not."""
        agreed = [self.name, self.recipe.digest, self.schema.digest, self.sites, self.seed,
                  self.coordinator.hex(), self.waits.quorum, self.smallest]  # fmt: skip
        return hashlib.blake2b(json.dumps(agreed).encode(), digest_size=16).hexdigest()

    @cached_property
    def example(self) -> Dataset:
        """One made-up row as models see it: for checks that ask for the kind of data alone."""
        return _seen(self.schema.example, self.recipe, self.schema)

    def seen(self, x: Tensor) -> Tensor:
        """Rows (n, *shape) as models see them: the rows, or what the frozen model named by
        ``features`` makes of them."""
        y = self.schema.example.y.expand(len(x))
        return _seen(replace(self.schema.example, x=x, y=y), self.recipe, self.schema).x


def _seen(rows: Dataset, recipe: Recipe, schema: Schema) -> Dataset:
    if recipe.features is None:
        return rows
    return embedded(rows, features(recipe.features, schema.shape))


def at_sites(recipe: Recipe, name: str, sites: int, schema: Schema) -> Recipe:
    """The recipe as real sites run it: every setting about data, partition and comparisons in one
    form, so that equal agreements have equal digests.

    Raises ValueError for settings that only a simulation can follow.
    """
    if recipe.flip:
        raise ValueError(f"flip is {recipe.flip}: wrong labels are for simulations; set flip=0")
    if recipe.target_scale == "oracle" and schema.task == "regression":
        raise ValueError(
            "target_scale 'oracle' reads labels that nobody has given yet; use 'labelled' or 'none'"
        )
    title = recipe.title if recipe.data == name else ""  # else it speaks of other data
    units = is_standardised(replace(recipe, data="-"), _seen(schema.example, recipe, schema))
    return replace(
        recipe, name=name, title=title, data=name, label=None, site=None,
        task=schema.task, rows=None, test_rows=None, resplit=False,
        partition=Spec("natural"), sites=sites,
        standardise="federated" if units else "none", test="own",
        executor="loop" if recipe.executor == "workers" else recipe.executor,
        queries=(str(recipe.query),), reference=None, seeds=1, bounds=(), published=None,
    )  # fmt: skip


# -- reading --------------------------------------------------------------------------------


def read_agreement(path: str | Path) -> Agreement:
    """The agreement in a TOML file: settings of a recipe, which may start from ``base = "demo"``,
    and the sections ``[federation]`` and ``[schema]``.

    Raises ValueError that names the file and the setting.
    """
    file = Path(path)
    try:
        settings = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(
            f"{file} cannot be read ({error.strerror}): it is the study.toml that the coordinator "
            "wrote and sent to the sites; put it there, or check the path"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{file} is not valid TOML: {error}") from error
    try:
        return agreement_from(settings)
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from error


def agreement_from(settings: Mapping[str, Any]) -> Agreement:
    """An agreement from the settings of its file."""
    rest = dict(settings)
    for section in ("federation", "schema"):
        if not isinstance(rest.get(section), Mapping):
            raise ValueError(
                f"there is no section [{section}]; 'fallow coordinate init' writes a whole file"
            )
    schema, about = schema_from(rest.pop("schema")), dict(rest.pop("federation"))
    known = ("name", "sites", "coordinator", "seed", "smallest", "timeout", "quorum", "patience",
             "deadline")  # fmt: skip
    for key in about:
        if key not in known:
            raise ValueError(f"federation.{key} is not a setting{nearest(key, list(known))}")
    for key in ("name", "sites", "coordinator"):
        if key not in about:
            raise ValueError(f"federation.{key} is missing; ask the coordinator for the whole file")
    texts = [about["name"], about["coordinator"], *_listed(about["sites"])]
    if wrong := [text for text in texts if not isinstance(text, str)]:
        raise ValueError(f"federation: {wrong[0]!r} is no text; put it in quotes")
    name, sites = about["name"], tuple(sorted(about["sites"]))
    base = rest.pop("base", None)
    recipe = recipe_from({"name": name, "data": name, **rest}, find_recipe(base) if base else None)
    return Agreement(
        name, at_sites(recipe, name, len(sites), schema), schema, sites,
        _key(about["coordinator"]), _whole(about, "seed", 0),
        Waits(**_waits(about)), _whole(about, "smallest", 5),
    )  # fmt: skip


def _listed(sites: Any) -> list[Any]:
    if not isinstance(sites, list):
        raise ValueError(f"federation.sites is {sites!r}; give a list of names")
    return sites


def _key(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(f"federation.coordinator is no base64: {error}") from error


def _whole(about: Mapping[str, Any], name: str, default: int | None) -> Any:
    value = about.get(name, default)
    if value is not None and type(value) is not int:
        raise ValueError(f"federation.{name} is {value!r}; give a whole number")
    return value


def _waits(about: Mapping[str, Any]) -> dict[str, Any]:
    times = {k: seconds_of(about[k], f"federation.{k}") for k in ("timeout", "patience", "deadline")
             if k in about}  # fmt: skip
    return {**times, "quorum": _whole(about, "quorum", None)}


# -- writing --------------------------------------------------------------------------------

HEAD = """\
# Agreement of the study "{name}".
#
# The coordinator and every site have this same file. It decides what is computed, which functions
# a site runs and what leaves it; nothing of that is ever taken from a message. A site refuses an
# order that does not carry the digest of its own copy; comments, limits of columns and
# lengths of time are no part of it. `fallow site init` and `fallow coordinate status` show it.
# Rows, images and single labels never leave their site.
"""


def write_agreement(path: str | Path, agreement: Agreement) -> None:
    """Write the file that `read_agreement` reads, with a word on every line."""
    write_whole(Path(path), agreement_text(agreement).encode())


def agreement_text(agreement: Agreement) -> str:
    """The agreement as TOML, for people to read first and sign."""
    waits, key = agreement.waits, base64.b64encode(agreement.coordinator).decode()
    quorum = waits.quorum if waits.quorum is not None else len(agreement.sites)
    lines = [
        HEAD.format(name=agreement.name),
        *recipe_lines(agreement.recipe),
        "\n[federation]",
        f"name = {toml_of(agreement.name)}",
        "# who takes part",
        f"sites = {toml_of(agreement.sites)}",
        "# the public key of the coordinator: a site obeys orders signed by it, and no other",
        f"coordinator = {toml_of(key)}",
        "# of initial weights and of every draw, but for secrets",
        f"seed = {agreement.seed}",
        "# scores over fewer test rows than this leave no site",
        f"smallest = {agreement.smallest}",
        "# sites whose answers an exchange needs; without this line all of them",
        ("" if waits.quorum is not None else "# ") + f"quorum = {quorum}",
        "# an exchange waits so long for all sites (s, m, h, d and w are units) ...",
        f"timeout = {toml_of(duration(waits.timeout))}",
        "# ... and so long for the quorum; then the coordinator stops, and can be started again",
        f"patience = {toml_of(duration(waits.patience))}",
        "# what people have for the labels of a cycle; the others are given back",
        f"deadline = {toml_of(duration(waits.deadline))}",
        *schema_lines(agreement.schema),
    ]
    return "\n".join(lines) + "\n"
