"""Callbacks of a study, for experiment trackers and custom code."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self, final

from fallow.core.events import Event, EventHandler, name_run
from fallow.core.extensions import load_extension
from fallow.core.names import OWN, ClassKind
from fallow.settings.config import OUTSIDE, ExperimentConfig
from fallow.settings.spec import Spec
from fallow.settings.variants import variant
from fallow.storage.errors import sentence
from fallow.study.study_run import StudyRun

Parameter = str | int | float | bool
"""Value of a setting for trackers."""
SCORES = ("accuracy", "mse", "distance", "labeled", "bytes_up", "bytes_down", "epsilon")
"""Metrics of a cycle for trackers: the score of the model and its cumulative cost."""
ENDINGS = ("done", "finished")
"""Events after which a run has ended successfully."""
FAILURES = ("failed", "stopped")
"""Events after which a run has failed or was stopped."""


@final
@dataclass(frozen=True)
class TrackedRun:
    """Run as seen by a callback: one query strategy with one seed.

    Attributes
    ----------
    study : str
        Name of the study.
    is_alone : bool
        Whether the study has no other run.
    parameters : dict
        Settings by name, such as "training_config.batch_size".  Paths of data are reduced to
        file names.
    """

    study: str
    strategy: str
    seed: int
    is_alone: bool = True
    parameters: Mapping[str, Parameter] = field(default_factory=dict, compare=False)

    @property
    def name(self) -> str:
        """Name of the run in a tracker.

        >>> TrackedRun("demo", "badge", 3).name
        'badge, seed 3'
        """
        return f"{self.strategy}, seed {self.seed}"


class Callback(Protocol):
    """Base class of callbacks, for the argument ``callbacks`` of `fallow.run` and `fallow.compare`.

    Override any of the methods.  Callbacks receive no examples and no values of individual sites.  An
    exception in a callback causes a warning, and the study continues without it.

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

    @classmethod
    def for_study(cls, folder: Path) -> Self:
        """Create the callback for ``--track``, for the study in ``folder``."""
        return cls()

    def begin_run(self, run: TrackedRun) -> None:
        """Handle the start of a run.

        When a run is resumed, the scores of its earlier cycles are passed again.
        """
        return

    def take_scores(self, run: TrackedRun, cycle: int, scores: Mapping[str, float]) -> None:
        """Handle the scores of a cycle.

        Parameters
        ----------
        run : TrackedRun
            Run.
        cycle : int
            Cycle, starting at 0.
        scores : mapping of str to float
            ``accuracy`` (0 to 1), ``mse`` or ``distance``, and cumulative values: ``labeled``
            (number of labels), ``bytes_up`` and ``bytes_down`` between sites and coordinator, and
            ``epsilon`` (privacy budget spent by a site).
        """
        return

    def end_run(self, run: TrackedRun, reason: str | None) -> None:
        """Handle the end of a run; ``reason`` tells why it failed or stopped (None if it finished)."""
        return

    def end(self, page: Path | None) -> None:
        """Handle the end of the study; ``page`` is its report, or None."""
        return


CALLBACK = ClassKind(
    "tracker", members=("for_study", "begin_run", "end"), group="fallow.callbacks"
)
"""Required kind of a tracker that a distribution adds: `Callback`."""


def load_tracker(name: str, folder: Path) -> Callback:
    """Create a tracker of an installed distribution for the study in ``folder``.

    The name is an option of the user, so any installed distribution is allowed.  Raises ValueError
    if none has it, or if a package of the tracker is not installed.
    """
    tracker: Callback = load_extension(CALLBACK, name, OWN).for_study(folder)
    return tracker


@final
@dataclass
class CallbackList:
    """Dispatcher of the events of a study (`fallow.core.events`) to callbacks.

    As a context manager, it also notifies callbacks if an exception ends the study.

    Parameters
    ----------
    runs : sequence of StudyRun
        Runs of the study.
    warn : callable
        Function that receives a message about a failing callback.
    study : str, optional
        Name of the study.  Default: that of the configuration.
    """

    callbacks: Sequence[Callback]
    config: ExperimentConfig
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

    def beside(self, notify: EventHandler) -> EventHandler:
        """Return an event handler that calls ``notify`` and then the callbacks."""

        def say_to_both(event: Event) -> None:
            notify(event)
            self(event)

        return say_to_both

    def follow(self, run: StudyRun) -> EventHandler:
        """Return an event handler for a study with one run, whose events do not name the run."""
        return lambda event: self(name_run(event, run.strategy, run.seed))

    def __call__(self, event: Event) -> None:
        """Handle one event of a run, with its ``strategy`` and ``seed``."""
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
            self._end_run(run, str(event.get("reason") or kind))

    def end(self, page: Path | None) -> None:
        """Notify callbacks of the end of the study; ``page`` is its report."""
        self._is_over = True
        self._tell(lambda callback: callback.end(page))

    def end_with_page(self, write: Callable[[], Path]) -> None:
        """Notify callbacks of the end of the study; ``write`` creates the report only if needed."""
        page = None
        # a callback without its own method needs no page
        is_wanted = any(type(item).end is not Callback.end for item in self._active)
        if is_wanted:
            try:
                page = write()
            except (OSError, ValueError) as error:
                self.warn(f"the report was not written: {sentence(error)}")
        self.end(page)

    def _begin_run(self, strategy: str, seed: int) -> TrackedRun:
        """Return the run of an event, and announce it to the callbacks once."""
        known = self._begun.get((strategy, seed))
        if known is not None:
            return known
        config = variant(self.config, strategy)
        run = TrackedRun(
            study=self.study or config.name,
            strategy=strategy,
            seed=seed,
            is_alone=len(self.runs) == 1,
            parameters={**list_parameters(config), "strategy": strategy, "seed": seed},
        )
        self._begun[strategy, seed] = run
        self._tell(lambda callback: callback.begin_run(run))
        return run

    def _end_run(self, run: TrackedRun, reason: str | None) -> None:
        del self._begun[run.strategy, run.seed]
        self._tell(lambda callback: callback.end_run(run, reason))

    def _tell(self, call: Callable[[Callback], None]) -> None:
        """Call every callback, and drop those that fail."""
        for callback in list(self._active):
            try:
                call(callback)
            except Exception as error:
                self._active.remove(callback)
                self.warn(
                    f"{type(callback).__name__} receives no more events of this study, "
                    f"which continues: {sentence(error)}"
                )


def read_scores(event: Event) -> dict[str, float]:
    """Return the values of a scored cycle, without those that do not apply.

    >>> read_scores(
    ...     {"event": "scored", "cycle": 0, "labeled": 9, "accuracy": 0.5, "mse": None}
    ... )
    {'accuracy': 0.5, 'labeled': 9.0}
    """
    scores: dict[str, float] = {}
    values: Mapping[str, object] = event
    for name in SCORES:
        value = values.get(name)
        if isinstance(value, int | float) and math.isfinite(value):
            scores[name] = float(value)
    return scores


def list_parameters(config: ExperimentConfig) -> dict[str, Parameter]:
    """Return the settings that affect the results of a run, by name, without None values.

    Training settings that were left to the model family have its values.

    >>> values = list_parameters(ExperimentConfig("mine"))
    >>> (
    ...     values["training"],
    ...     values["training_config.batch_size"],
    ...     values["privacy.secure_sum"],
    ... )
    ('fedavg', 16, False)
    """
    parameters: dict[str, Parameter] = {}
    config = replace(config, training_config=config.completed_training)
    for item in fields(config):
        if item.name not in OUTSIDE:
            parameters |= _flatten(item.name, getattr(config, item.name))
    path = Path(config.data)
    if path.exists():  # the name of a folder may identify a person
        parameters["data"] = path.name
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
        for field in fields(value):
            result |= _flatten(f"{name}.{field.name}", getattr(value, field.name))
        return result
    return {name: json.dumps(value, default=_as_plain)}


def _as_plain(value: object) -> object:
    """Convert a value without a JSON form: a component to its fields, anything else to text."""
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return str(value)
