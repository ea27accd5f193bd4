"""Study agreement: the single configuration file that all parties share."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import torch
from torch import Tensor

from fallow.core.limits import Limits, NonNegativeInt, check_limits
from fallow.core.load_options import DEFAULTS
from fallow.core.names import (
    BUILT_IN,
    Distribution,
    NamePolicy,
    check_name,
    find_distribution,
)
from fallow.core.refusal import explain_errors
from fallow.core.types import SiteId
from fallow.data import Dataset, embed_rows
from fallow.deployment.answer_plan import SINGLE, AnswerPlan
from fallow.deployment.folders import check_authority
from fallow.deployment.received import check_texts
from fallow.deployment.schema import Schema
from fallow.deployment.toml import OF_FILES
from fallow.experiment.encoding import encoder_for_texts
from fallow.experiment.methods import is_untrained
from fallow.experiment.rows import features
from fallow.experiment.scale import is_standardized
from fallow.privacy.settings import SMALLEST, check_targets
from fallow.settings.config import (
    DISCLOSURE,
    ExperimentConfig,
    fields_of_training,
    named_classes,
)
from fallow.settings.spec import Spec
from fallow.settings.sums import find_promise
from fallow.settings.training_defaults import (
    REGRESSION,
    choose_training,
    complete_from,
)
from fallow.storage.received import decode_text, read_named
from fallow.transport.factory import TransportFactory
from fallow.transport.kinds import USUAL, check_transport, find_factory

MOST_OF_GUIDELINE = 4000  # characters; it is shown beside every example
# a valid file name on every operating system
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


REVEAL = "reveal"
"""Field of a closed-form algorithm with the information that sites receive."""
SECONDS = Limits(gt=0, advice=" seconds")
FACTOR = Limits(ge=1, advice=", or inf for no bound")
SHARE = Limits(gt=0, le=1, advice=", which is not a bound")


@dataclass(frozen=True)
class Timeouts:
    """Timeouts of the coordinator in seconds, and the quorum.

    An exchange waits ``timeout`` for all sites, then until ``patience`` for ``quorum`` of them.
    After that the coordinator stops and can be restarted. ``deadline`` is the time for the labels
    of a cycle. All of these except ``quorum`` may change during a study.
    """

    timeout: Annotated[float, SECONDS] = 600.0
    quorum: int | None = None  # None: all sites are required
    patience: Annotated[float, SECONDS] = 604800.0
    deadline: Annotated[float, SECONDS] = 1209600.0

    def __post_init__(self) -> None:
        check_limits(self, "federation.")


@dataclass(frozen=True)
class Bounds:
    """Limits on the deviation of one site from the others.

    Parameters
    ----------
    farthest
        Largest norm of a site's model, in units of the larger of the median over sites and the last
        model. The limit for other numbers, which may be squares, is its square.
    largest_share, largest_ratio
        Largest weight of a site in an average of models: as a share of the total, and in units of
        the median over sites. A larger weight is clipped. These limits apply from three sites on,
        because with two sites neither is the outlier.
    """

    farthest: Annotated[float, FACTOR] = 1000.0
    largest_share: Annotated[float, SHARE] = 0.5
    largest_ratio: Annotated[float, FACTOR] = 10.0
    DESCRIPTIONS: ClassVar[Mapping[str, str]] = {
        "farthest": "reject a model whose norm exceeds the usual norm by this factor",
        "largest_share": "largest weight of a site in an average, as a share of all sites",
        "largest_ratio": "largest weight of a site, relative to the median (from three sites on; "
        "inf: no limit)",
    }

    def __post_init__(self) -> None:
        check_limits(self, "federation.")


@dataclass(frozen=True)
class Agreement:
    """Study agreement of all parties.

    ``config`` is the experiment configuration in the form of `at_sites`. ``coordinator`` is the key
    that authenticates instructions. ``authority`` is the certificate (PEM) that authenticates the
    coordinator's machine, or None if it is agreed on separately. ``bounds`` limit how unusual a reply
    may be before it is clipped or rejected. ``guideline`` is the labeling guideline as plain text,
    or None. ``transport`` is a name in `fallow.transport.kinds.FACTORIES` or of an extension.
    ``distributions`` are the distributions other than Fallow whose code the study uses, by name.
    ``plan`` is the number of annotations of an example and how its label is decided.

    ``names`` is the policy for class names in the configuration. The machine that reads the
    agreement sets it, and it is not part of the agreement. An agreement with other names cannot be
    created.
    """

    name: str
    config: ExperimentConfig
    schema: Schema
    sites: tuple[SiteId, ...]
    coordinator: bytes
    seed: NonNegativeInt = 0
    waits: Timeouts = Timeouts()
    authority: str | None = None
    bounds: Bounds = Bounds()
    guideline: str | None = None
    transport: str = USUAL
    distributions: Mapping[str, Distribution] = field(default_factory=dict)
    plan: AnswerPlan = SINGLE
    names: NamePolicy = field(default=BUILT_IN, compare=False)

    def __post_init__(self) -> None:
        check_names(self.config, self.names)
        check_cells(self.config, self.schema)
        check_ranges(self.config, self.schema)
        _check_name("name", self.name)
        for site in self.sites:
            _check_name("sites", site)
        if not self.sites:
            raise ValueError("federation.sites is empty; name at least one site")
        if tuple(sorted(set(self.sites))) != self.sites:
            raise ValueError(
                f"federation.sites is {list(self.sites)}; name each site once, in sorted order"
            )
        if len({site.lower() for site in self.sites}) < len(self.sites):
            raise ValueError(
                f"federation.sites is {list(self.sites)}; two names differ in capital letters "
                "only: rename one, because some systems do not distinguish them"
            )
        if self.authority is not None:
            copy = "copy the lines from the study.toml that the coordinator sent"
            check_authority(self.authority.encode(), "federation.authority", copy)
        if self.guideline is not None:
            check_guideline(self.guideline)
        check_transport(self.transport, self.names, "federation.transport")
        check_distributions(self.distributions, self.names)
        is_trained = not is_untrained(self.config)
        if self.schema.is_done_only and is_trained:
            raise ValueError(
                f"schema.classes is {list(self.schema.classes)}, and training "
                f"{self.config.training} needs two classes; name them, or set training=none"
            )
        self.plan.check_study(
            self.config,
            len(self.schema.classes),
            n_labels=len(self.schema.labels),
            is_trained=is_trained,
        )
        least = 1
        if self.config.privacy.secure_sum:
            least = SMALLEST
        limit = len(self.sites)
        if self.waits.quorum is not None and not least <= self.waits.quorum <= limit:
            why = ""
            if 0 < self.waits.quorum < least:
                why = (
                    f": secure aggregation needs {SMALLEST} sites; set "
                    "privacy.secure_sum=false to disable it"
                )
            raise ValueError(
                f"federation.quorum is {self.waits.quorum}; it must be {least} to {limit}, the "
                f"number of sites{why}"
            )
        check_limits(self, "federation.")

    @cached_property
    def digest(self) -> str:
        """Return a hash (32 hexadecimal digits) of everything that affects results or disclosure.

        Timeouts are not included.
        """
        agreed = {
            "name": self.name,
            "config": self.config.digest_under(BUILT_IN),
            "schema": self.schema.digest,
            "sites": self.sites,
            "seed": self.seed,
            "coordinator": self.coordinator.hex(),
            "quorum": self.waits.quorum,
            "authority": self.authority,
            "transport": self.transport,
            "bounds": asdict(self.bounds),
            "guideline": self.guideline,
            "distributions": describe_distributions(self.distributions),
            "plan": asdict(self.plan),
        }
        return hashlib.blake2b(json.dumps(agreed).encode(), digest_size=16).hexdigest()

    @property
    def transport_factory(self) -> type[TransportFactory]:
        """Return the agreed transport. Its code is loaded if ``names`` allow it."""
        return find_factory(self.transport, self.names)

    @property
    def code(self) -> str:
        """Return a fingerprint of the agreed distributions, or "" if the study uses only Fallow."""
        return _fingerprint_code(self.distributions)

    @property
    def installed_code(self) -> str:
        """Return the fingerprint of these distributions as they are installed here."""
        return _fingerprint_code(
            {name: find_distribution(name) for name in self.distributions}
        )

    @cached_property
    def example(self) -> Dataset:
        """Return a synthetic example in model form, for checks of the data type."""
        return self._transform(self.schema.example)

    def transform(self, x: Tensor) -> Tensor:
        """Return rows (n, *shape) in model form.

        With ``features``, the frozen model of that name encodes the rows.
        """
        y = self.schema.example.y.expand(len(x))
        return self._transform(replace(self.schema.example, x=x, y=y)).x

    def _transform(self, rows: Dataset) -> Dataset:
        if self.config.features is None:
            return rows
        return embed_rows(
            rows, features(self.config.features, self.schema.shape, self.names)
        )


def _check_name(setting: str, name: str) -> None:
    """Raise ValueError for a name that is not a valid file name on every system."""
    if not NAME.fullmatch(name):
        raise ValueError(
            f"federation.{setting}: {name!r} is not a valid name; use 1 to 64 letters, "
            "digits, dots, dashes and underscores, and start with a letter or digit"
        )


def read_guideline(file: Path) -> str:
    """Read the labeling guideline from a text file and strip it.

    Raises ValueError, naming the file, if it cannot be read or is not safe to display.
    """
    with explain_errors(
        f"the guideline {file} cannot be read (", after="); give a text file", of=OSError
    ):
        content = read_named(file)
    with explain_errors(f"{file}: "):
        text = decode_text(content).strip()
        check_guideline(text)
    return text


def check_guideline(text: str) -> None:
    """Raise ValueError for a guideline that is empty, too long or not safe to display.

    It was written by another party and is shown to annotators.
    """
    what = "federation.guideline"
    if not text or text != text.strip():
        raise ValueError(
            f"{what} is empty or has leading or trailing space; write a text, or "
            "leave the setting out"
        )
    if len(text) > MOST_OF_GUIDELINE:
        raise ValueError(
            f"{what} has {len(text)} characters, more than {MOST_OF_GUIDELINE}; shorten it"
        )
    check_texts({what: text})


def check_cells(config: ExperimentConfig, schema: Schema) -> None:
    """Raise ValueError if columns may be empty but the configuration needs complete rows."""
    lacking = [column.name for column in schema.columns if column.may_be_empty]
    if not lacking:
        return
    what = f"schema.columns: {lacking[0]!r} may be empty"
    if config.drop_rows:
        raise ValueError(
            f"{what}, but with drop_rows = true, sites drop rows with empty cells; "
            "leave out one of may_be_empty and drop_rows"
        )
    if config.features is not None:
        raise ValueError(
            f"{what}, but a frozen model (features) needs complete rows; agree on "
            "drop_rows = true, or leave out features"
        )


def check_ranges(config: ExperimentConfig, schema: Schema) -> None:
    """Raise ValueError if features are to be scaled by ranges that the columns do not have."""
    if config.standardize != "ranges":
        return
    why = _explain_no_ranges(config.encoder, schema)
    if why is not None:
        raise ValueError(
            f"standardize is 'ranges', but {why}; give every column of numbers low and high in "
            "study.toml, without empty cells, text columns or an encoder of their values, or set "
            "standardize=federated"
        )


def _explain_no_ranges(encoder: Spec | None, schema: Schema) -> str | None:
    """Explain why features cannot be scaled by agreed ranges, or return None."""
    if encoder is not None and encoder.name != "identity":
        return f"the encoder {encoder} computes other features"
    try:
        schema.read_ranges()
    except ValueError as error:
        return str(error)
    return None


def _name_scaling(
    config: ExperimentConfig, encoder: Spec | None, schema: Schema
) -> Literal["federated", "ranges", "none"]:
    """Return the feature scaling; "auto" scales by agreed ranges if sums have noise.

    Scaling over sites would send exact sums over all rows beside the noise.
    """
    if config.standardize == "ranges":
        return "ranges"
    if not is_standardized(replace(config, data="-"), _make_example(config, schema)):
        return "none"
    is_free = config.standardize == "auto" and find_promise(config) == "noisy"
    if is_free and _explain_no_ranges(encoder, schema) is None:
        return "ranges"
    return "federated"


def check_names(config: ExperimentConfig, policy: NamePolicy) -> None:
    """Raise ValueError, naming the setting, for a class that ``policy`` does not permit.

    Nothing is imported or built.
    """
    for setting, name in named_classes(config).items():
        with explain_errors(f"{setting}: "):
            check_name(name, policy)


def check_distributions(
    distributions: Mapping[str, Distribution], policy: NamePolicy
) -> None:
    """Raise ValueError unless ``policy`` allows the agreed code of each distribution."""
    if policy.any_module:
        return
    for name, agreed in distributions.items():
        allowed = policy.allowed.get(name)
        if allowed is None:
            raise ValueError(
                f"federation.distributions: the study uses code of {name} {agreed}; install it, "
                f'review its code, and write {name} = "{agreed.digest}" under [allow] in site.toml '
                f"(when a site's folder is created: --allow {name}={agreed.digest})"
            )
        if allowed != agreed.digest:
            raise ValueError(
                f"federation.distributions: the study uses {name} {agreed}, and {allowed} is allowed "
                f"here; install {name}=={agreed.version}, review its code, and write its digest "
                "under [allow] in site.toml"
            )


def describe_distributions(
    distributions: Mapping[str, Distribution],
) -> dict[str, dict[str, str]]:
    """Return versions and digests by distribution, in alphabetical order."""
    return {name: asdict(distributions[name]) for name in sorted(distributions)}


def _fingerprint_code(distributions: Mapping[str, Distribution]) -> str:
    if not distributions:
        return ""
    text = json.dumps(describe_distributions(distributions))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _make_example(config: ExperimentConfig, schema: Schema) -> Dataset:
    """Build a synthetic row in model form. The number of features is not known."""
    if config.features is None:
        return schema.example
    listed = torch.zeros(1, 1)
    return replace(schema.example, x=listed, x_test=listed[:0], columns=())


def _name_encoder(config: ExperimentConfig, schema: Schema) -> Spec | None:
    """Return the encoder, with "auto" replaced by a name for photographs and for text columns.

    The choice of "auto" depends on the installed packages. With a fixed name, a site without that
    encoder is rejected before the study starts.
    """
    if config.features is None:
        config = replace(config, encoder=encoder_for_texts(config.encoder, schema.features))
    if config.encoder != Spec("auto"):
        return config.encoder
    from fallow.encoders.auto import Auto, is_photo  # sites rarely need it

    shape = tuple(_make_example(config, schema).x.shape[1:])
    if not is_photo(shape):
        return config.encoder
    return Spec.of(Auto().settle(shape))


def _name_revealed(training: Spec) -> Spec:
    """Return the training algorithm; sites receive one model unless the study names another choice.

    A path of solutions contains second moments of all labeled examples, which are examples.
    """
    if REVEAL not in fields_of_training(training.name) or REVEAL in training.fields:
        return training
    if training.fields.get("delta") is not None:
        return training  # with noise, there is no path
    return Spec(training.name, {**training.fields, REVEAL: "head"})


def at_sites(
    config: ExperimentConfig, name: str, sites: int, schema: Schema
) -> ExperimentConfig:
    """Return the experiment configuration as remote sites run it.

    Settings about data, partition and comparisons are normalized, so that equal agreements have
    equal hashes. Raises ValueError for settings that only a simulation supports.
    """
    if config.flip:
        raise ValueError(
            f"flip is {config.flip}, but wrong labels are for simulations only; set flip=0"
        )
    if DISCLOSURE in config.measure:
        raise ValueError(
            "measure lists 'disclosure', which compares with the true examples "
            "of all sites, for simulations only; omit it, and use 'fallow site attack' at a site"
        )
    if config.target_scale == "oracle" and schema.task == "regression":
        raise ValueError(
            "target_scale 'oracle' needs labels that do not exist yet; use "
            "'labeled' or 'none'"
        )
    if schema.task == "regression":
        check_targets(config.privacy, config.target_scale)
    title = ""
    if config.data == name:  # otherwise it refers to other data
        title = config.title
    encoder = _name_encoder(config, schema)
    training_config = config.completed_training
    if schema.task == "regression":
        training_config = complete_from(config.training_config, REGRESSION)
    privacy = replace(config.privacy, sums=config.privacy.stated_sums)
    without_files = {name: getattr(DEFAULTS, name) for name in OF_FILES}
    return replace(
        replace(config, **without_files),
        privacy=privacy,
        training=_name_revealed(choose_training(config.training, schema.task)),
        encoder=encoder,
        name=name,
        title=title,
        training_config=training_config,
        data=name,
        task="auto" if schema.task == "multilabel" else schema.task,
        rows=None,
        test_rows=None,
        resplit=False,
        partition=Spec("natural"),
        sites=sites,
        standardize=_name_scaling(config, encoder, schema),
        test="own",
        device="none",  # each site uses its own hardware
        precision="float32",
        strategies=(str(config.strategy),),
        reference=None,
        seeds=1,
        bounds=(),
        published=None,
    )
