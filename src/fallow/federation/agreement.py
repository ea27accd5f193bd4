"""The agreement: one file that the coordinator and every site have, and nothing else decides."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from fallow.core.names import BUILT_IN, NamePolicy, check_name
from fallow.core.terms import nearest
from fallow.core.types import SiteId
from fallow.data import Dataset, embed_rows
from fallow.encoders.auto import is_photo
from fallow.encoders.efficientnet_lite import is_installed
from fallow.experiment.rows import features
from fallow.experiment.scale import is_standardized
from fallow.federation.folders import check_authority
from fallow.federation.schema import Schema
from fallow.network.links import LINKS, USUAL
from fallow.network.plausible import Bounds
from fallow.privacy.settings import MIN_NEW_LABELS, SMALLEST
from fallow.privacy.signing import is_forgeable
from fallow.settings.recipe import Recipe, named_classes
from fallow.settings.spec import Spec
from fallow.settings.training_defaults import REGRESSION, complete_from
from fallow.storage.plain import is_unfit

KEY = 32  # bytes of an Ed25519 key
MOST_OF_GUIDELINE = 4000  # letters: it is read beside every sample
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

    recipe: as `at_sites` makes it.  coordinator: the key by which sites know its orders.
    authority: the certificate (PEM) by which they know its machine; None where that is agreed on
    elsewhere.  smallest: scores over fewer test rows leave no site.  bounds: how unusual an answer
    may be before the coordinator does not count it, or not in full.  guideline: how samples are to
    be labeled, plain text that people read beside each; None: no word on it.  link: what carries
    messages, a name of `fallow.network.links.LINKS`.  names: whose classes the
    recipe may name, as the machine that reads it has decided: it is no part of what was agreed on.
    An agreement with another name cannot be made, so whatever is built of one has passed that gate.
    """

    name: str
    recipe: Recipe
    schema: Schema
    sites: tuple[SiteId, ...]
    coordinator: bytes
    seed: int = 0
    waits: Waits = Waits()
    smallest: int = 5
    authority: str | None = None
    bounds: Bounds = Bounds()
    guideline: str | None = None
    link: str = USUAL
    names: NamePolicy = field(default=BUILT_IN, compare=False)

    def __post_init__(self) -> None:
        check_names(self.recipe, self.names)
        check_cells(self.recipe, self.schema)
        _check_name("name", self.name)
        for site in self.sites:
            _check_name("sites", site)
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
        if is_forgeable(self.coordinator):
            raise ValueError(
                "federation.coordinator is a key with which anybody can sign; ask the coordinator "
                "for a study.toml with its own key"
            )
        if self.authority is not None:
            copy = "copy the lines from the study.toml that the coordinator sent"
            check_authority(self.authority.encode(), "federation.authority", copy)
        if self.guideline is not None:
            check_guideline(self.guideline)
        if self.link not in LINKS:
            raise ValueError(
                f"federation.link is {self.link!r:.80}{nearest(self.link, list(LINKS))}; it is one "
                f"of {', '.join(LINKS)}"
            )
        least = 1
        if self.recipe.privacy.secure_sum:
            least = SMALLEST
        most = len(self.sites)
        if self.waits.quorum is not None and not least <= self.waits.quorum <= most:
            why = ""
            if 0 < self.waits.quorum < least:
                why = (
                    f": secure sums need {SMALLEST} sites; set privacy.secure_sum=false to go "
                    "without them"
                )
            raise ValueError(
                f"federation.quorum is {self.waits.quorum}; it must be {least} to {most}, the "
                f"number of sites{why}"
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
        agreed = [
            self.name,
            self.recipe.digest_under(BUILT_IN),
            self.schema.digest,
            self.sites,
            self.seed,
            self.coordinator.hex(),
            self.waits.quorum,
            self.smallest,
            self.authority,
            self.link,
        ]
        # an agreement from before there were bounds keeps its digest
        if self.bounds != Bounds():
            agreed.append(asdict(self.bounds))
        # it sways what people say; without one the digest is what it was before there were any
        if self.guideline is not None:
            agreed.append({"guideline": self.guideline})
        return hashlib.blake2b(json.dumps(agreed).encode(), digest_size=16).hexdigest()

    @cached_property
    def example(self) -> Dataset:
        """One made-up row as models see it: for checks that ask for the kind of data alone."""
        return self._transform(self.schema.example)

    def transform(self, x: Tensor) -> Tensor:
        """Rows (n, *shape) as models see them: the rows, or what the frozen model named by
        ``features`` makes of them."""
        y = self.schema.example.y.expand(len(x))
        return self._transform(replace(self.schema.example, x=x, y=y)).x

    def _transform(self, rows: Dataset) -> Dataset:
        if self.recipe.features is None:
            return rows
        return embed_rows(
            rows, features(self.recipe.features, self.schema.shape, self.names)
        )


def _check_name(setting: str, name: str) -> None:
    """Raise ValueError for a name that could not be a file's on any system."""
    if not NAME.fullmatch(name):
        raise ValueError(
            f"federation.{setting}: {name!r} is no name; use 1 to 64 letters, digits, dots, "
            "dashes and underscores, and begin with a letter or digit"
        )


def read_guideline(file: Path) -> str:
    """The guideline in a text file, without space around it.

    Raises ValueError, with the file, where it cannot be read or is not fit to be shown.
    """
    try:
        text = file.read_text(encoding="utf-8-sig").strip()
    except OSError as error:
        raise ValueError(
            f"the guideline {file} cannot be read ({error.strerror}); give a text file"
        ) from error
    except UnicodeDecodeError as error:
        raise ValueError(
            f"the guideline {file} is no text in UTF-8; save it as plain text"
        ) from error
    try:
        check_guideline(text)
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from error
    return text


def check_guideline(text: str) -> None:
    """Raise ValueError for a guideline that is empty, too long or not fit to be shown: somebody
    else wrote it, and people read it beside what they label."""
    what = "federation.guideline"
    if not text or text != text.strip():
        raise ValueError(
            f"{what} is empty or has space around it; write a text, or leave the setting out"
        )
    if len(text) > MOST_OF_GUIDELINE:
        raise ValueError(
            f"{what} has {len(text)} letters, more than {MOST_OF_GUIDELINE}; shorten it"
        )
    for character in text:
        if is_unfit(character) and character != "\n":
            raise ValueError(
                f"{what} has the character {character!r}, which changes how other text is shown; "
                "leave it out"
            )


def check_cells(recipe: Recipe, schema: Schema) -> None:
    """Raise ValueError where columns may be empty, and the recipe needs whole rows."""
    lacking = [column.name for column in schema.columns if column.may_be_empty]
    if not lacking:
        return
    what = f"schema.columns: {lacking[0]!r} may be empty"
    if recipe.drop_rows:
        raise ValueError(
            f"{what}, and with drop_rows = true sites leave rows with empty cells out; leave out "
            "one of may_be_empty and drop_rows"
        )
    if recipe.features is not None:
        raise ValueError(
            f"{what}, and a frozen model (features) needs whole rows; agree on drop_rows = true, or "
            "leave out features"
        )


def check_names(recipe: Recipe, policy: NamePolicy) -> None:
    """Raise ValueError, naming the setting, for a class that ``policy`` does not let resolve.

    Nothing is imported or built.
    """
    for setting, name in named_classes(recipe).items():
        try:
            check_name(name, policy)
        except ValueError as error:
            raise ValueError(f"{setting}: {error}") from error


def _make_example(recipe: Recipe, schema: Schema) -> Dataset:
    """A row as models see it, in kind alone: of features it is only known that they are a list."""
    if recipe.features is None:
        return schema.example
    listed = torch.zeros(1, 1)
    return replace(schema.example, x=listed, x_test=listed[:0], columns=())


def _name_encoder(recipe: Recipe, schema: Schema) -> Spec | None:
    """The encoder; for photographs by its own name in place of auto, which depends on what is
    installed: a site that lacks it is refused before the study begins."""
    shape = tuple(_make_example(recipe, schema).x.shape[1:])
    if recipe.encoder != Spec("auto") or not is_photo(shape):
        return recipe.encoder
    return Spec("efficientnet-lite0" if is_installed() else "convolution")


def at_sites(recipe: Recipe, name: str, sites: int, schema: Schema) -> Recipe:
    """The recipe as real sites run it: every setting about data, partition and comparisons in one
    form, so that equal agreements have equal digests.

    Raises ValueError for settings that only a simulation can follow.
    """
    if recipe.flip:
        raise ValueError(
            f"flip is {recipe.flip}: wrong labels are for simulations; set flip=0"
        )
    if recipe.target_scale == "oracle" and schema.task == "regression":
        raise ValueError(
            "target_scale 'oracle' reads labels that nobody has given yet; use 'labeled' or 'none'"
        )
    title = ""
    if recipe.data == name:  # else it speaks of other data
        title = recipe.title
    standardize: Literal["federated", "none"] = "none"
    if is_standardized(replace(recipe, data="-"), _make_example(recipe, schema)):
        standardize = "federated"
    config = recipe.completed_training
    if schema.task == "regression":
        config = complete_from(recipe.training_config, REGRESSION)
    privacy = recipe.privacy
    if privacy.min_new_labels is None:
        privacy = replace(privacy, min_new_labels=MIN_NEW_LABELS)
    return replace(
        recipe,
        encoder=_name_encoder(recipe, schema),
        privacy=privacy,
        name=name,
        title=title,
        training_config=config,
        data=name,
        label=None,
        site=None,
        task=schema.task,
        rows=None,
        test_rows=None,
        resplit=False,
        partition=Spec("natural"),
        sites=sites,
        standardize=standardize,
        test="own",
        device="none",  # each site has a machine of its own
        precision="float32",
        strategies=(str(recipe.strategy),),
        reference=None,
        seeds=1,
        bounds=(),
        published=None,
    )
