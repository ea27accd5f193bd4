"""Configuration of local training at a site."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from math import cos, pi
from typing import Annotated, Any, Literal, final

from fallow.core.limits import (
    Limits,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    check_limits,
)
from fallow.core.suggestions import explain_constructor


@final
@dataclass(frozen=True)
class Described:
    """Description of a field in its annotation: ``Annotated[int, Described("batch size")]``."""

    text: str

    def __get_pydantic_json_schema__(
        self, core_schema: Any, handler: Callable[[Any], dict[str, Any]]
    ) -> dict[str, Any]:  # schemas of pydantic
        return {**handler(core_schema), "description": self.text}


FALLBACK_LR = 0.01
FALLBACK_BATCH_SIZE = 32


@explain_constructor
@dataclass(frozen=True)
class Optimizer:
    """Optimizer of local training; its moments are stored with the weights.

    Parameters
    ----------
    name : {"sgd", "adam", "adamw"}
        Name of the optimizer.
    lr : float, optional
        Learning rate.  None: the default of the model family, for SGD.
    momentum : float
        Momentum of SGD.
    weight_decay : float
        L2 weight decay of parameters; statistics are unchanged.  SGD and Adam add it to the
        gradient.  AdamW shrinks the parameters instead and requires a value.
    betas : tuple of float
        Decay rates of the moment estimates of Adam.
    eps : float
        Term added to the denominator of Adam for numerical stability.
    persist : bool
        Whether moments are kept between rounds, until a cycle starts from initial weights.

    >>> Optimizer("adam", lr=1e-3).betas
    (0.9, 0.999)
    """

    name: Literal["sgd", "adam", "adamw"] = "sgd"
    lr: PositiveFloat | None = None
    momentum: Annotated[float, Limits(ge=0, lt=1)] = 0.9
    weight_decay: NonNegativeFloat = 0.0
    betas: tuple[float, float] = (0.9, 0.999)
    eps: NonNegativeFloat = 1e-8
    persist: bool = False

    def __post_init__(self) -> None:
        check_limits(self, "optimizer.")
        unused = self._find_unused()
        if unused:
            raise ValueError(
                f"optimizer {self.name!r} does not use {unused}, which is "
                f"{getattr(self, unused)}; leave it out"
            )
        if self.name == "adamw" and not self.weight_decay:
            raise ValueError(
                "optimizer 'adamw' without weight decay is 'adam'; set weight_decay, such as "
                "0.01, the default of PyTorch"
            )

    def _find_unused(self) -> str | None:
        """Return a field that is set and not used by this optimizer."""
        names = ("momentum",) if self.is_adaptive else ("betas", "eps")
        defaults = {item.name: item.default for item in fields(self)}
        for name in names:
            if getattr(self, name) != defaults[name]:
                return name
        return None

    @property
    def is_adaptive(self) -> bool:
        """Whether the optimizer is Adam or AdamW."""
        return self.name != "sgd"

    @property
    def learning_rate(self) -> float:
        """``lr``, or 0.01 if the configuration was not completed by a model family."""
        return FALLBACK_LR if self.lr is None else self.lr


@explain_constructor
@dataclass(frozen=True)
class Schedule:
    """Decrease the learning rate at milestones or along a cosine.

    Parameters
    ----------
    milestones : tuple of int
        Epochs or rounds of a cycle at which the learning rate is multiplied.
    factor : float
        Multiplier of the learning rate.
    unit : {"epoch", "round"}
        Unit of the milestones and of ``cosine``: local epochs (AHFAL, KAFAL) or rounds (LoGo).
    cosine : int, optional
        Number T of epochs or rounds of a cycle.  The multiplier of the learning rate at t is
        (1 + cos(pi t / T)) / 2, as in ``torch.optim.lr_scheduler.CosineAnnealingLR``.  It stays
        at its last value from t = T - 1 on.

    >>> falling = Schedule(milestones=(10, 15), factor=0.1, unit="round")
    >>> [round(falling.at(round_, epoch=0, epochs=5), 4) for round_ in (9, 10, 15)]
    [1.0, 0.1, 0.01]
    >>> [Schedule(cosine=4).at(0, epoch, 4) for epoch in (0, 2)]
    [1.0, 0.5]
    """

    milestones: tuple[int, ...] = ()
    factor: float = 0.1
    unit: Literal["epoch", "round"] = "epoch"
    cosine: PositiveInt | None = None

    def __post_init__(self) -> None:
        check_limits(self, "schedule.")
        if self.cosine is not None and self.milestones:
            raise ValueError(
                f"schedule has the milestones {self.milestones} and cosine {self.cosine}; "
                "give one of them"
            )

    def at(self, round_: int, epoch: int, epochs: int) -> float:
        """Return the multiplier of the learning rate in a local epoch.

        Parameters
        ----------
        round_ : int
            Round, from 0.
        epoch : int
            Local epoch in the round, from 0.
        epochs : int
            Number of local epochs in a round.

        Examples
        --------
        >>> Schedule((260,), 0.1).at(52, 0, 5), Schedule((260,), 0.1).at(51, 4, 5)
        (0.1, 1.0)
        """
        now = round_
        if self.unit == "epoch":
            now = round_ * epochs + epoch
        if self.cosine is not None:
            return (1 + cos(pi * min(now, self.cosine - 1) / self.cosine)) / 2
        n_reached = sum(now >= milestone for milestone in self.milestones)
        return self.factor**n_reached


@explain_constructor
@dataclass(frozen=True)
class TrainingStage:
    """Train a part of the model for some epochs (FedRep trains the head, then the body).

    Parameters
    ----------
    epochs : int
        Number of epochs.
    part : {"all", "head", "body"}
        Part of the model that is trained.

    >>> TrainingConfig(stages=(TrainingStage(3, "head"), TrainingStage(1, "body"))).epochs
    4
    """

    epochs: Annotated[int, Limits(ge=0), Described("Number of epochs.")] = 1
    part: Annotated[
        Literal["all", "head", "body"], Described("Part of the model that is trained.")
    ] = "all"


FALLBACK_STAGES = (TrainingStage(),)

KEYWORDS: Mapping[str, tuple[str, ...]] = {
    "lr": ("optimizer", "lr"),
    "epochs": ("stages",),
    "batch_size": ("batch_size",),
    "optimizer": ("optimizer", "name"),
    "momentum": ("optimizer", "momentum"),
    "weight_decay": ("optimizer", "weight_decay"),
    "schedule": ("schedule",),
    "milestones": ("schedule", "milestones"),
    "augment": ("augment",),
    "patience": ("patience",),
    "stop_at": ("stop_at",),
}
"""Keyword of a training algorithm -> position of its value in a `TrainingConfig`."""


@explain_constructor
@dataclass(frozen=True)
class TrainingConfig:
    """Local training at a site: stages of epochs over its labeled examples.

    In an experiment, ``stages``, ``batch_size`` and ``optimizer.lr`` that are None have the
    defaults of the model family (`fallow.settings.training_defaults`).

    Parameters
    ----------
    stages : tuple of TrainingStage, optional
        Epochs, each stage on a part of the model.
    batch_size : int, optional
        Number of examples per step.
    optimizer : Optimizer
        Optimizer with its learning rate.
    schedule : Schedule
        Decrease of the learning rate.
    start : str
        ``"given"`` starts from the received model, ``"scratch"`` from new random weights.  Any
        other word is the name of a model in the memory of the site.
    stop_at : float, optional
        Training accuracy at which training ends after the epoch.
    augment : tuple of {"flip", "crop2", "crop4"}
        Random augmentation of images.
    patience : int, optional
        Number of epochs without a lower mean training loss before training ends. The last
        weights are kept.
    mix : float, optional
        Alpha of mixup with unlabeled examples: coefficients are drawn from Beta(mix, mix).

    >>> config = TrainingConfig((TrainingStage(5), TrainingStage(2)), batch_size=16)
    >>> config.epochs
    7
    """

    stages: tuple[TrainingStage, ...] | None = None
    batch_size: PositiveInt | None = None
    optimizer: Optimizer = Optimizer()
    schedule: Schedule = Schedule()
    start: str = "given"
    stop_at: float | None = None
    augment: tuple[Literal["flip", "crop2", "crop4"], ...] = ()
    patience: PositiveInt | None = None
    mix: PositiveFloat | None = None

    def __post_init__(self) -> None:
        check_limits(self)

    @property
    def trained_stages(self) -> tuple[TrainingStage, ...]:
        """``stages``, or one epoch if the configuration was not completed."""
        return FALLBACK_STAGES if self.stages is None else self.stages

    @property
    def examples_per_step(self) -> int:
        """``batch_size``, or 32 if the configuration was not completed."""
        return FALLBACK_BATCH_SIZE if self.batch_size is None else self.batch_size

    @property
    def epochs(self) -> int:
        return sum(stage.epochs for stage in self.trained_stages)

    def completed(self, defaults: TrainingConfig) -> TrainingConfig:
        """Replace stages, batch size and learning rate that are None.

        Parameters
        ----------
        defaults : TrainingConfig
            Configuration with values for them.

        Examples
        --------
        >>> TrainingConfig(batch_size=8).completed(TrainingConfig(batch_size=32)).batch_size
        8
        """
        changes: dict[str, Any] = {}
        for name in ("stages", "batch_size"):
            if getattr(self, name) is None:
                changes[name] = getattr(defaults, name)
        if self.optimizer.lr is None:
            changes["optimizer"] = replace(self.optimizer, lr=defaults.optimizer.lr)
        return replace(self, **changes)

    def to_dict(self) -> dict[str, object]:
        """Return the configuration as nested plain values, for messages and files."""
        return asdict(self)

    @staticmethod
    def from_dict(fields: Mapping[str, Any]) -> TrainingConfig:  # Any: values of JSON
        """Return the configuration from ``to_dict``, also after JSON, which has lists for tuples.

        Raises TypeError for an unknown field.

        Parameters
        ----------
        fields : mapping of str to value
            Result of ``to_dict``.
        """
        optimizer = dict(fields["optimizer"])
        optimizer["betas"] = tuple(optimizer["betas"])
        schedule = dict(fields["schedule"])
        schedule["milestones"] = tuple(schedule["milestones"])
        stages = fields["stages"]
        if stages is not None:
            stages = tuple(TrainingStage(**stage) for stage in stages)
        nested = {
            "stages": stages,
            "optimizer": Optimizer(**optimizer),
            "schedule": Schedule(**schedule),
            "augment": tuple(fields["augment"]),
        }
        return TrainingConfig(**{**fields, **nested})


def expand_keywords(keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a training configuration for keywords, nested as in TOML.

    Raises ValueError for an invalid number of epochs, and for 0.

    >>> expand_keywords({"lr": 0.1, "epochs": 2})
    {'optimizer': {'lr': 0.1}, 'stages': [{'epochs': 2, 'part': 'all'}]}
    """
    settings: dict[str, Any] = {}
    for keyword, value in keywords.items():
        path = KEYWORDS[keyword]
        if keyword == "epochs":
            if value == 0:
                raise ValueError("epochs is 0, so nothing is trained; give 1 or more")
            value = [asdict(TrainingStage(value))]
        if isinstance(value, Optimizer | Schedule):
            value = asdict(value)
        if keyword == "optimizer" and isinstance(value, Mapping):
            path = ("optimizer",)
        nested: Any = value
        for name in reversed(path):
            nested = {name: nested}
        settings = merge_explicit(settings, nested, (f"{keyword} beside it", ""))
    return settings


def merge_explicit(
    first: Mapping[str, Any], second: Mapping[str, Any], sources: tuple[str, str]
) -> dict[str, Any]:
    """Merge two nested descriptions of one training configuration.

    A default value in ``first`` is overridden.  Raises ValueError for different values of one
    setting.  sources: names of ``first`` and ``second`` in the message.

    >>> merge_explicit({"batch_size": 8}, {"batch_size": 16}, ("training", "settings"))
    Traceback (most recent call last):
        ...
    ValueError: batch_size is 8 in training and 16 in settings; give it once
    """
    return _merge(first, second, TrainingConfig().to_dict(), sources)


def _merge(
    first: Mapping[str, Any],
    second: Mapping[str, Any],
    defaults: Any,  # a mapping, or nothing where settings have no default
    sources: tuple[str, str],
) -> dict[str, Any]:
    merged = dict(first)
    for name, value in second.items():
        default = None
        if isinstance(defaults, Mapping):
            default = defaults.get(name)
        before = merged.get(name)
        if value is None and before is not None:
            continue
        if isinstance(before, Mapping) and isinstance(value, Mapping):
            merged[name] = _merge(before, value, default, sources)
            continue
        is_open = before is None or as_lists(before) == as_lists(default)
        if not is_open and as_lists(before) != as_lists(value):
            raise ValueError(
                f"{name} is {before} in {sources[0]} and {value}"
                f"{sources[1] and ' in ' + sources[1]}; give it once"
            )
        merged[name] = value
    return merged


def as_lists(value: Any) -> Any:
    """Convert tuples to lists, the only sequence type of JSON and of configuration files."""
    if isinstance(value, Mapping):
        return {name: as_lists(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [as_lists(part) for part in value]
    return value
