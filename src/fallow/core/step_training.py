"""The training configuration of a training algorithm, whole or by keyword."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from typing import Any

from fallow.core.limits import check_fields
from fallow.core.training_config import (
    KEYWORDS,
    Optimizer,
    Schedule,
    TrainingConfig,
    expand_keywords,
    merge_explicit,
)
from fallow.core.wording import HEADING, add_parameters

NOT_GIVEN = TrainingConfig()
"""Compared by identity: the caller gave no ``training_config``."""


@dataclass(frozen=True)
class StepTraining:
    """Base of the training algorithms whose sites train by gradient steps.

    It declares the keywords once, so that type checkers and editors know them in every
    algorithm.  A subclass checks its own fields in ``check``.

    The parameters below are part of the docstring of each subclass.

    Parameters
    ----------
    training_config : TrainingConfig
        Configuration of local training in a round.
    lr : float, optional
        Learning rate.  Default of this and the next parameters: the value in
        ``training_config``, or that of the model family.
    epochs : int, optional
        Number of epochs over the labeled examples of a site in each round.
    batch_size : int, optional
        Batch size.
    optimizer : {"sgd", "adam", "adamw"} or Optimizer, optional
        Optimizer.
    momentum : float, optional
        Momentum of SGD.
    weight_decay : float, optional
        L2 weight decay.
    schedule : Schedule, optional
        Decrease of the learning rate.
    milestones : sequence of int, optional
        Epochs or rounds of a cycle at which the schedule multiplies the learning rate.
    augment : sequence of {"flip", "crop2", "crop4"}, optional
        Random augmentation of images.
    patience : int, optional
        Number of epochs without a lower mean training loss before training ends.
    stop_at : float, optional
        Training accuracy at which training ends after the epoch.
    """

    training_config: TrainingConfig = NOT_GIVEN
    lr: InitVar[float | None] = field(default=None, kw_only=True)
    epochs: InitVar[int | None] = field(default=None, kw_only=True)
    batch_size: InitVar[int | None] = field(default=None, kw_only=True)
    optimizer: InitVar[str | Optimizer | None] = field(default=None, kw_only=True)
    momentum: InitVar[float | None] = field(default=None, kw_only=True)
    weight_decay: InitVar[float | None] = field(default=None, kw_only=True)
    schedule: InitVar[Schedule | Mapping[str, Any] | None] = field(
        default=None, kw_only=True
    )
    milestones: InitVar[Sequence[int] | None] = field(default=None, kw_only=True)
    augment: InitVar[Sequence[str] | None] = field(default=None, kw_only=True)
    patience: InitVar[int | None] = field(default=None, kw_only=True)
    stop_at: InitVar[float | None] = field(default=None, kw_only=True)

    def __post_init__(self, *values: Any) -> None:  # in the order of `KEYWORDS`
        keywords = {}
        for name, value in zip(KEYWORDS, values, strict=True):
            if value is not None:
                keywords[name] = value
        config = self.training_config
        whole: Mapping[str, Any] = {}
        if config is not NOT_GIVEN:
            whole = config.to_dict()
        explicit = merge_explicit(
            whole,
            expand_keywords(keywords),
            (f"{type(self).__name__}'s training_config", ""),
        )
        if keywords:
            config = TrainingConfig.from_dict(_complete(explicit))
            object.__setattr__(self, "training_config", config)
        # Values of keywords for this instance, instead of the defaults of the class.
        object.__setattr__(self, "_explicit", explicit)
        for name, path in KEYWORDS.items():
            object.__setattr__(self, name, _read(config, path))
        check_fields(self)
        self.check()

    def __init_subclass__(cls) -> None:
        """Add the shared parameters to the docstring."""
        if cls.__doc__ and StepTraining.__doc__:
            shared = StepTraining.__doc__.partition(HEADING)[2]
            cls.__doc__ = add_parameters(cls.__doc__, shared)

    def check(self) -> None:
        """Raise ValueError for an invalid field of the subclass."""

    @property
    def explicit(self) -> Mapping[str, Any]:
        """Settings of the training configuration that the caller set, nested as in TOML."""
        result: Mapping[str, Any] = self._explicit  # type: ignore[attr-defined]  # set above
        return result


def _complete(explicit: Mapping[str, Any]) -> dict[str, Any]:
    """Return all fields of a training configuration as plain values, with defaults."""
    whole = NOT_GIVEN.to_dict()
    optimizer: Any = whole["optimizer"]
    return {
        **whole,
        **explicit,
        "optimizer": {**optimizer, **explicit.get("optimizer", {})},
    }


def _read(config: TrainingConfig, path: tuple[str, ...]) -> object:
    if path == ("stages",) and config.stages is not None:
        return config.epochs
    value: object = config
    for name in path:
        value = getattr(value, name)
    return value
