"""What a study tells others while it runs: one protocol, for trackers and for a person's own."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self, final

from fallow.core.events import Event, Say, name_run
from fallow.settings.recipe import OUTSIDE, Recipe
from fallow.settings.spec import Spec
from fallow.settings.variants import variant
from fallow.storage.errors import sentence
from fallow.study.cell import StudyRun

Parameter = str | int | float | bool
"""A setting as trackers take it."""
SCORES = ("accuracy", "mse", "labeled", "bytes_up", "bytes_down", "epsilon")
"""What a tracker is told of a cycle: the score of the model, and what it has cost so far."""
ENDINGS = ("done", "finished")
"""Events after which a run is over and went well."""
FAILURES = ("failed", "stopped")
"""Events after which a run is over and did not."""


@final
@dataclass(frozen=True)
class TrackedRun:
    """A run as whoever follows it sees it: one strategy under one seed.

    study: the name of the study.  is_alone: the study has no other run.
    parameters: the settings of the recipe by their names, "training_config.batch_size" for a
    part of a part.  Of data on this machine they have the file's name and not its folder.
    """

    study: str
    strategy: str
    seed: int
    is_alone: bool = True
    parameters: Mapping[str, Parameter] = field(default_factory=dict, compare=False)

    @property
    def name(self) -> str:
        """How a tracker calls it.

        >>> TrackedRun("demo", "badge", 3).name
        'badge, seed 3'
        """
        return f"{self.strategy}, seed {self.seed}"


class Callback(Protocol):
    """Is told what a study does: what ``callbacks=`` takes.

    Each method may be left out by a class that names this one as its base.  Nothing about rows is
    told, and no site's own number; what a callback raises is a warning, and the study goes on
    without it.

    >>> class Best(Callback):
    ...     accuracy = 0.0
    ...
    ...     def take_scores(self, run, cycle, scores):
    ...         self.accuracy = max(self.accuracy, scores["accuracy"])
    >>> import fallow as fl
    >>> best = Best()
    >>> done = fl.run(
    ...     "digits", "random", training="fedavg", rounds=1, cycles=0, callbacks=[best]
    ... )
    >>> bool(best.accuracy == done.records["accuracy"].max())
    True
    """

    def begin_run(self, run: TrackedRun) -> None:
        """A run begins, or goes on after it was stopped: then its earlier cycles are told again."""
        return

    def take_scores(self, run: TrackedRun, cycle: int, scores: Mapping[str, float]) -> None:
        """The model of a cycle was scored.

        scores: ``accuracy`` in [0, 1] or ``mse``; of the run up to here, ``labeled`` labels that
        were bought, ``bytes_up`` and ``bytes_down`` between sites and coordinator, and
        ``epsilon``, what a site has spent on noise.
        """
        return

    def end_run(self, run: TrackedRun, why: str | None) -> None:
        """A run has ended.  why: a sentence where it failed or was stopped; None: it is finished."""
        return

    def end(self, page: Path | None) -> None:
        """The study has ended.  page: its report; None where there is none."""
        return


@final
@dataclass
class CallbackList:
    """Takes the events of a study's runs (`fallow.core.events`), and tells callbacks of them.

    A context: callbacks hear of its end also where an error ends it.
    runs: those of the study.  warn: takes a sentence about a callback that has failed.
    study: its name, where that is not the recipe's.
    """

    callbacks: Sequence[Callback]
    recipe: Recipe
    runs: Sequence[StudyRun]
    warn: Callable[[str], None]
    study: str = ""
    _begun: dict[tuple[str, int], TrackedRun] = field(default_factory=dict)
    _is_over: bool = False

    def __post_init__(self) -> None:
        self._active = list(self.callbacks)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        if self._is_over:
            return
        why = "stopped"
        if isinstance(error, Exception):
            why = sentence(error)
        for run in list(self._begun.values()):
            self._end_run(run, why)
        self.end(None)

    def beside(self, say: Say) -> Say:
        """Whoever takes events, and the callbacks after it."""

        def say_to_both(event: Event) -> None:
            say(event)
            self(event)

        return say_to_both

    def follow(self, run: StudyRun) -> Say:
        """Whoever takes the events of a study's only run, which do not say of which run they are."""
        return lambda event: self(name_run(event, run.strategy, run.seed))

    def __call__(self, event: Event) -> None:
        """Take one event of a run, which has its ``strategy`` and its ``seed``."""
        kind = event["event"]
        is_new = (event["strategy"], event["seed"]) not in self._begun
        if not self._active or (is_new and kind in ENDINGS):  # it was finished before
            return
        run = self._begin_run(event["strategy"], event["seed"])
        if kind == "scored":
            cycle = event["cycle"]
            scores = read_scores(event)
            self._tell(lambda callback: callback.take_scores(run, cycle, scores))
        elif kind in ENDINGS:
            self._end_run(run, None)
        elif kind in FAILURES:
            self._end_run(run, str(event.get("why") or kind))

    def end(self, page: Path | None) -> None:
        """The study has ended; ``page``: its report."""
        self._is_over = True
        self._tell(lambda callback: callback.end(page))

    def end_with_page(self, write: Callable[[], Path]) -> None:
        """The study has ended; ``write`` draws its report, which nobody needs but callbacks."""
        page = None
        # one that leaves the method of its base as it is takes no page
        is_wanted = any(type(item).end is not Callback.end for item in self._active)
        if is_wanted:
            try:
                page = write()
            except (OSError, ValueError) as error:
                self.warn(f"the report page was not drawn: {sentence(error)}")
        self.end(page)

    def _begin_run(self, strategy: str, seed: int) -> TrackedRun:
        """The run that an event is about; callbacks are told of it once."""
        known = self._begun.get((strategy, seed))
        if known is not None:
            return known
        recipe = variant(self.recipe, strategy)
        run = TrackedRun(
            study=self.study or recipe.name,
            strategy=strategy,
            seed=seed,
            is_alone=len(self.runs) == 1,
            parameters={**list_parameters(recipe), "strategy": strategy, "seed": seed},
        )
        self._begun[strategy, seed] = run
        self._tell(lambda callback: callback.begin_run(run))
        return run

    def _end_run(self, run: TrackedRun, why: str | None) -> None:
        del self._begun[run.strategy, run.seed]
        self._tell(lambda callback: callback.end_run(run, why))

    def _tell(self, call: Callable[[Callback], None]) -> None:
        """Call every callback; one that fails is called no more."""
        for callback in list(self._active):
            try:
                call(callback)
            except Exception as error:
                self._active.remove(callback)
                self.warn(
                    f"{type(callback).__name__} is told nothing more of this study, which goes "
                    f"on: {sentence(error)}"
                )


def read_scores(event: Event) -> dict[str, float]:
    """The numbers of a scored cycle; those that do not apply are left out.

    >>> read_scores(
    ...     {"event": "scored", "cycle": 0, "labeled": 9, "accuracy": 0.5, "mse": None}
    ... )
    {'accuracy': 0.5, 'labeled': 9.0}
    """
    scores: dict[str, float] = {}
    told: Mapping[str, object] = event
    for name in SCORES:
        value = told.get(name)
        if isinstance(value, int | float) and math.isfinite(value):
            scores[name] = float(value)
    return scores


def list_parameters(recipe: Recipe) -> dict[str, Parameter]:
    """The settings that decide what a run computes, by their names; those that are None are left
    out.

    >>> found = list_parameters(Recipe("mine"))
    >>> found["training"], found["training_config.batch_size"], found["privacy.secure_sum"]
    ('fedavg', 16, False)
    """
    parameters: dict[str, Parameter] = {}
    for item in fields(recipe):
        if item.name not in OUTSIDE:
            parameters |= _flatten(item.name, getattr(recipe, item.name))
    place = Path(recipe.data)
    if place.exists():  # a folder's name may say who somebody is
        parameters["data"] = place.name
    return parameters


def _flatten(name: str, value: object) -> dict[str, Parameter]:
    if value is None:
        return {}
    if isinstance(value, Spec):
        return {name: str(value)}
    if isinstance(value, str | int | float):
        return {name: value}
    if is_dataclass(value) and not isinstance(value, type):
        result: dict[str, Parameter] = {}
        for each in fields(value):
            result |= _flatten(f"{name}.{each.name}", getattr(value, each.name))
        return result
    return {name: json.dumps(value, default=_as_plain)}


def _as_plain(value: object) -> object:
    """What JSON has no form for: a part of a setting in its fields, anything else as a text."""
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return str(value)
