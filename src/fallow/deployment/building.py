"""Build a study from the agreement, independently at the coordinator and at each site.

No configuration is transferred.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import cast

import torch
from torch import nn

from fallow import encoders
from fallow.core.build import find
from fallow.core.client import list_declared
from fallow.core.methods import (
    ContributionDisclosure,
    Encoder,
    LabelRanking,
    Method,
    Methods,
    methods_by_owner,
)
from fallow.core.model_vectors import Layout
from fallow.core.names import own_class
from fallow.core.streams import stream
from fallow.core.types import DTYPES, State
from fallow.deployment.agreement import Agreement
from fallow.deployment.annotators import Annotators
from fallow.encoders.base import HasWeights
from fallow.engine import row_loss
from fallow.engine.column_counts import DescribedColumn
from fallow.engine.executors import Executor, build_executor
from fallow.experiment.encoding import (
    check_tuning,
    encoder_of,
    find_dims,
    shape_after,
    with_encoder,
)
from fallow.experiment.measuring import find_measurements, refuse_without_sites
from fallow.experiment.methods import (
    ModelMaker,
    executor_of,
    joins_groups,
    methods_of,
    narrow_training,
)
from fallow.experiment.scale import is_standardized
from fallow.experiment.suitability import check_task
from fallow.measurements.description import (
    MOST_COLUMNS,
    Describe,
    list_array_columns,
    list_table_columns,
)
from fallow.privacy.settings import SMALLEST
from fallow.settings.config import ExperimentConfig
from fallow.settings.spec import Spec
from fallow.settings.sums import find_promise
from fallow.training.scaling import Scaling

LARGE = 1e9
"""Default bound on a site's contribution to an aggregate. Squares of measurements are large."""
DIGEST = "sha256"
"""Field of an encoder with the digest of ``weights``; ``NAME_sha256`` has that of ``NAME``."""


@dataclass(frozen=True)
class BuiltStudy:
    """Model and algorithms of a study, identical at the coordinator and at every site.

    ``trainer`` is the name of the ``executor``, for records. ``width`` is the number of features in
    model form. ``encoder`` produces them, if there is one. ``dims`` are the
    dimensions of declared fields.
    """

    model: nn.Module
    layout: Layout
    methods: Methods
    fresh: Callable[[torch.Generator], State]
    classes: int
    executor: Executor
    trainer: str
    dtype: torch.dtype
    width: int
    encoder: Encoder | None = None
    dims: Mapping[str, int] = field(default_factory=dict)


def build_study(agreement: Agreement) -> BuiltStudy:
    """Build a study with the random streams and weights of `experiment.simulation.simulation_of`.

    Raises ValueError for an algorithm that only a simulation supports or that does not fit the
    schema.
    """
    config = agreement.config
    _check_weights(agreement)
    schema = agreement.schema
    names = agreement.names
    check_task(config, agreement.example, names)
    measured = tuple(agreement.example.x.shape[1:])
    encoder = encoder_of(config, measured, names)
    if isinstance(encoder, HasWeights):
        encoder.weights_digest()  # raises if its package or its weights are missing
    shape = shape_after(config, encoder, measured)
    maker = ModelMaker(config, shape, schema.outputs, names)
    model = maker.build(stream(agreement.seed, "template"))
    layout = Layout.of(model)

    chosen = narrow_training(
        methods_of(config, policy=names), math.prod(shape), len(schema.classes)
    )
    methods = with_encoder(chosen, encoder, measured, schema.missing)
    check_tuning(config, methods)
    _add_label_ranks(agreement, methods)
    for name in ("query", "training"):
        if methods[name].contract.simulator_only:
            raise ValueError(
                f"{agreement.name}: {methods[name].contract.title} reads hidden "
                "labels, which exist only in a simulation; choose another algorithm "
                "in study.toml"
            )
    _check_declared(agreement, methods)
    trainer = executor_of(config, model, names)
    executor = build_executor(
        trainer,
        model,
        layout,
        row_loss(schema.task),
        channels_last=config.channels_last,
        policy=names,
    )
    annotators = Annotators(
        secure_sum=config.privacy.secure_sum,
        classes=schema.task == "classification",
        n_labels=len(schema.labels),
        schema=schema.digest,
        code=agreement.code,
        sends_agreement=agreement.plan.send_agreement,
        sends_predictions=agreement.plan.sends_predictions(config),
        sends_none=agreement.plan.sends_none(config),
        measurements=find_measurements(config, is_regression=schema.task == "regression"),
        has_cases=joins_groups(config),
    )
    _check_shown(agreement, methods["training"], "training", config.training)
    # other query strategies disclose only means of several examples
    if isinstance(methods["query"], ContributionDisclosure):
        _check_shown(agreement, methods["query"], "strategy", config.strategy)
    _check_tuned(agreement, methods)
    playing = _choose_playing(agreement, methods)
    _check_noisy(agreement, playing)
    if config.privacy.secure_sum:
        refuse_without_sites(
            config, "secure aggregation hides them; set privacy.secure_sum=false"
        )
    return BuiltStudy(
        model=model,
        layout=layout,
        methods=playing | {"annotators": annotators} | _find_description(agreement),
        fresh=partial(maker.draw_weights, layout),
        classes=len(schema.classes),
        executor=executor,
        trainer=trainer,
        dtype=DTYPES[config.dtype],
        width=math.prod(shape),
        encoder=encoder,
        dims=find_dims(
            config, layout, encoder, measured, len(schema.classes), len(agreement.sites)
        ),
    )


def _add_label_ranks(agreement: Agreement, methods: Methods) -> None:
    """Let sites rank their labels, if annotators check suspicious ones."""
    if not agreement.plan.checked_labels:
        return
    training = methods["training"]
    if not isinstance(training, LabelRanking):
        raise ValueError(
            f"{agreement.name}: federation.checked_labels needs exact leave-one-out predictions, and "
            f"training = {agreement.config.training} has none; use closed-form, or omit it"
        )
    methods["training"] = training.with_label_ranks()


def _choose_playing(agreement: Agreement, methods: Methods) -> Methods:
    """Return the algorithms that the study uses.

    A site serves no other algorithm, so that it discloses only what the study needs.
    """
    config = agreement.config
    has_numbers = agreement.schema.task == "regression"
    trains = methods["training"].contract.trains
    # an encoder receives imputed cells and produces complete rows
    has_empty = agreement.schema.missing is not None and config.encoder is None
    ranges: tuple[tuple[float, float], ...] = ()
    if config.standardize == "ranges":
        ranges = agreement.schema.read_ranges()
    scaling = Scaling(
        of_rows=is_standardized(config, agreement.example) and not ranges,
        of_numbers=has_numbers and trains and config.target_scale != "none",
        of_cells=has_empty,
        is_encoded=config.encoder is not None,
        ranges=ranges,
    )
    playing = methods.copy()
    playing["scaling"] = scaling
    if not (scaling.of_rows or scaling.of_numbers or scaling.of_cells or ranges):
        del playing["scaling"]
    if not config.validation:
        del playing["retention"]
    return playing


def _find_description(agreement: Agreement) -> Methods:
    """Return the description of the data, unless noise protects the counts of the study."""
    config = agreement.config
    schema = agreement.schema
    if config.privacy.epsilon is not None:
        return cast(Methods, {})
    columns = list_array_columns(schema.shape)
    left_out: list[str] = []
    if schema.columns:
        levels = [(c.name, c.values) for c in schema.columns if not c.text]
        columns = list_table_columns(levels, schema.features)
        left_out = [c.name for c in schema.columns if c.text]
        left_out += [name for name, _ in levels[MOST_COLUMNS:]]
    described = Describe(
        columns,
        DescribedColumn(schema.label, schema.classes),
        config.privacy.secure_sum,
        left_out=tuple(left_out),
    )
    return cast(Methods, {"describe": described})


def _check_weights(agreement: Agreement) -> None:
    """Raise ValueError for encoder weights that the agreement does not fix by a hash.

    The agreement names a file on this machine. Without an agreed hash, parties could use different
    weights, and a site's replies would depend on an unknown file.
    """
    spec = agreement.config.encoder
    if spec is None:
        return
    cls = own_class(spec.name) or find(encoders, spec.name, agreement.names)
    pinned: list[str] = []
    for item in fields(cls):
        if item.name == DIGEST:
            pinned += ["weights", DIGEST]
        elif item.name.endswith(f"_{DIGEST}"):
            pinned += [item.name.removesuffix(f"_{DIGEST}"), item.name]
    lacking = [name for name in pinned if not spec.fields.get(name)]
    if lacking:
        raise ValueError(
            f"{agreement.name}: the encoder {spec.name} has no "
            f"{' and no '.join(lacking)}; in a federation, name the file of weights "
            "and its SHA-256, so that all sites use the same"
        )


def with_secure_sums(config: ExperimentConfig, sites: int) -> ExperimentConfig:
    """Enable secure aggregation if there are enough sites and it was not disabled explicitly.

    Otherwise the configuration is returned unchanged, and `build_study` rejects algorithms that
    need secure aggregation.
    """
    shows = "parts" in (
        spec.fields.get("shown") for spec in (config.training, config.strategy)
    )
    if sites < SMALLEST or shows or config.privacy.secure_sum:
        return config
    bound = config.privacy.bound or LARGE
    return replace(config, privacy=replace(config.privacy, secure_sum=True, bound=bound))


def _check_declared(agreement: Agreement, methods: Methods) -> None:
    """Raise ValueError for a client function whose arguments or reply could not be checked."""
    for method in methods_by_owner(methods).values():
        for item in list_declared(method):
            if item.lacking is not None:
                raise ValueError(
                    f"{agreement.name}: {method.contract.title} does not declare the "
                    f"fields of {item.name!r}, and sites send declared fields only; "
                    "declare them at the function, such as "
                    f"@client.{item.operation}({item.discloses!r}, {item.lacking}={{...}})"
                )


def _check_shown(agreement: Agreement, method: Method, setting: str, spec: Spec) -> None:
    """Raise ValueError if the coordinator would see data whose disclosure was not agreed."""
    is_agreed = isinstance(method, ContributionDisclosure) and method.shown == "parts"
    if not method.contract.parts_show or agreement.config.privacy.secure_sum or is_agreed:
        return
    showing = Spec(spec.name, {**spec.fields, "shown": "parts"})
    raise ValueError(
        f"{agreement.name}: {method.contract.title} needs secure aggregation in a "
        f"federation, because without it {method.contract.parts_show}; set "
        "privacy.secure_sum = true (three sites or more), or agree to that with "
        f'{setting} = "{showing}"'
    )


WITHOUT_SUMS = {
    "scaling": "give every column of numbers low and high in study.toml and set "
    "standardize=ranges, with no empty cells",
    "filling": "fill empty cells in the files of all sites",
    "encoder": "use an encoder that is not fitted, such as encoder=identity",
}
"""How a study does without the exact sums over all examples of an algorithm, by its owner."""


def _check_noisy(agreement: Agreement, methods: Methods) -> None:
    """Raise ValueError for exact sums over all examples in a study that promises noise."""
    if find_promise(agreement.config) != "noisy":
        return
    for owner, method in methods_by_owner(methods).items():
        for item in list_declared(method):
            if item.over and not item.release:
                remedy = WITHOUT_SUMS.get(owner, "choose another algorithm")
                raise ValueError(
                    f"{agreement.name}: privacy.sums is 'noisy', and {method.contract.title} "
                    f"sends exact {item.discloses}, from which an example that leaves can be "
                    f"computed: {remedy}, or set privacy.sums=exact without privacy.epsilon"
                )


def _check_tuned(agreement: Agreement, methods: Methods) -> None:
    """Raise ValueError if encoder selection would disclose data without an agreement."""
    training = methods["training"]
    is_agreed = isinstance(training, ContributionDisclosure) and training.shown == "parts"
    if "tuning" not in methods or agreement.config.privacy.secure_sum or is_agreed:
        return
    encoder = agreement.config.encoder
    raise ValueError(
        f"{agreement.name}: a field of the encoder {encoder} is chosen by labels, "
        "which needs secure aggregation in a federation, because without it "
        f"{methods['tuning'].contract.parts_show}; set privacy.secure_sum = true "
        "(three sites or more), or give the field, such as encoder = "
        "'fourier:gamma=0.25'"
    )
