"""Run one query strategy under one seed."""

from __future__ import annotations

import json
import shutil
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, final

import numpy as np
import numpy.typing as npt
from torch import nn

from fallow.api.federation import Federation
from fallow.api.fingerprints import open_study_folder
from fallow.api.keywords import ModelLike, RunSettings, StrategyLike, TrainingLike
from fallow.api.label_issues import rank_labels
from fallow.api.objects import read_seed, read_whole
from fallow.api.progress import ProgressLine
from fallow.api.saved_model import LoadedModel, save_run
from fallow.api.settings import RunRequest, check_instruction, read_request
from fallow.configs.defaults import check_single_run, suit_strategies
from fallow.configs.papers import load_paper_results, load_papers
from fallow.core.events import EventHandler, name_run
from fallow.core.methods import CustomPrediction
from fallow.core.names import OWN, lend
from fallow.core.optional import check_full_install
from fallow.core.types import SiteId, State
from fallow.core.wording import join_some
from fallow.data import Dataset
from fallow.experiment.event_log import EventLog
from fallow.experiment.finished import TrainedModel
from fallow.experiment.methods import is_untrained, methods_of
from fallow.measurements.prediction_sets import (
    build_prediction_sets,
    check_coverage,
    read_nonconformity,
)
from fallow.settings.budgets import LabelBudget
from fallow.settings.config import ExperimentConfig
from fallow.settings.variants import variant
from fallow.storage.files import load_tree
from fallow.study.callbacks import Callback, CallbackList
from fallow.study.cite import cite_strategies
from fallow.study.preparation import (
    Suited,
    describe_prepared,
    keep_facts,
    prepare_study,
)
from fallow.study.reading import read_study
from fallow.study.study import list_runs, run_one
from fallow.study.study_run import Setup, StudyRun

if TYPE_CHECKING:
    import pandas as pd

DEFAULT = "default"
"""Strategy of the experiment configuration."""


def run(
    federation: Federation | Dataset | str | Path | None = None,
    strategy: StrategyLike = DEFAULT,
    *,
    training: TrainingLike | None = None,
    model: ModelLike | None = None,
    budget: LabelBudget | Sequence[LabelBudget] | None = None,
    initial: LabelBudget | None = None,
    cycles: int | None = None,
    rounds: int | None = None,
    seed: int = 0,
    config: ExperimentConfig | Mapping[str, Any] | str | Path | None = None,
    out: str | Path | None = None,
    progress: bool | None = None,
    callbacks: Sequence[Callback] = (),
    **settings: Unpack[RunSettings],
) -> Run:
    """Run federated active learning with one query strategy and one seed.

    The run trains a model on the initial labeled set.  Each cycle then selects examples at each
    site, reveals their labels and trains again.

    Parameters
    ----------
    federation : Federation, Dataset, str or Path
        Federated dataset, or a dataset, or the name or path of one.  A path is read with the options
        of `fallow.load` among ``settings``, such as ``label="outcome"``.
    strategy : query strategy, class or str
        Query strategy, such as ``fl.AHFAL(tau=15)`` or ``"ahfal:tau=15"``.  Default: that of
        ``config``, otherwise random sampling.
    training : training algorithm, class or str, optional
        Training algorithm, such as ``fl.FedProx(mu=0.01)``.  Default: `ClosedForm`, a closed-form
        classifier on features of an encoder.  Specify it to use network settings (``model``,
        ``rounds``, ``lr``), noise (``privacy.epsilon``) or a query strategy that needs a network.
    model : model, torch.nn.Module, class or str, optional
        Model to train.
    budget : float, int or sequence of them, optional
        Label budget of a cycle: a fraction of all examples (0.05) or a number of labels at each site
        (20).  A list has one for each cycle.  ``budget_allocation`` divides a fraction among the
        sites.
    initial : float or int, optional
        Size of the initial labeled set, in the units of ``budget``.
    cycles : int, optional
        Number of cycles after the initial training.
    rounds : int, optional
        Number of rounds per cycle.
    seed : int, default=0
        Seed for initialization and all non-cryptographic randomness.
    config : ExperimentConfig, mapping, str or Path, optional
        Experiment configuration with the defaults of all settings: an object, a mapping, a name
        ("demo") or a TOML file.  It also determines the default of ``training``.
    out : str or Path, optional
        Folder for the results, from which an interrupted run can be resumed.  Default: nothing
        is stored.
    progress : bool, optional
        Whether to show progress.  Default: in terminals and notebooks, after two seconds.
    callbacks : sequence of Callback, optional
        Experiment trackers, such as ``fallow_trackers.MLflow()``, ``WandB()`` or
        ``TensorBoard(folder)``, or your own (`fallow.study.callbacks.Callback`).
    **settings
        Any other setting of the experiment configuration, such as ``participation=0.5``,
        ``training_config=fl.TrainingConfig(batch_size=64)`` or ``privacy=fl.Privacy(...)``.

    Returns
    -------
    Run

    Raises
    ------
    ValueError
        If a setting is unknown or invalid.  All settings are checked before training starts.

    Examples
    --------
    >>> import fallow as fl
    >>> federation = fl.Federation(fl.load("digits"), fl.Dirichlet(alpha=0.1), sites=4)
    >>> done = fl.run(
    ...     federation,
    ...     fl.Entropy(),
    ...     training="fedavg",
    ...     model=fl.Linear(),
    ...     cycles=1,
    ...     rounds=2,
    ... )
    >>> done
    Run(entropy on digits, seed 0: 2 phases, 216 labels, accuracy 0.73)
    >>> len(done.records)
    4
    """
    check_full_install("fl.run")
    check_instruction(
        federation, strategy, "fl.run(federation, strategy, ...)", "federation"
    )
    if strategy is None:
        raise ValueError(
            "strategy is None; give a query strategy, such as 'margin', or omit it for "
            "random sampling"
        )
    is_named = not (isinstance(strategy, str) and strategy == DEFAULT)
    check_single_run(settings)
    if isinstance(config, Mapping):
        check_single_run(config)
    value = {
        "training": training,
        "model": model,
        "budget": budget,
        "initial": initial,
        "cycles": cycles,
        "rounds": rounds,
    }
    named = [strategy] if is_named else []
    request = read_request(federation, config, {"bounds": (), **value, **settings}, named)
    texts = [request.collected.text(one) for one in named]
    suited = suit_strategies if not is_named else None
    folder = make_folder(out)
    try:
        setup, (cell,), _ = carry_out(
            request,
            folder,
            texts or [str(request.config.strategy)],
            [read_seed(seed)],
            _run_only,
            command="fallow.run",
            suited=suited,
            progress=progress,
            callbacks=callbacks,
        )
        with lend(setup.classes):
            return read_run(setup, cell, is_kept=out is not None)
    finally:
        if out is None:
            shutil.rmtree(folder, ignore_errors=True)


Result = TypeVar("Result")
RunAll = Callable[[Setup, Sequence[StudyRun], EventHandler, Callable[[str], None]], Result]
"""Function that runs a study, given functions for its events and for lines of text."""


def _run_only(
    setup: Setup,
    cells: Sequence[StudyRun],
    notify: EventHandler,
    tell: Callable[[str], None],
) -> None:
    (cell,) = cells
    run_one(setup, cell, lambda event: notify(name_run(event, cell.strategy, cell.seed)))


def carry_out(
    request: RunRequest,
    folder: Path,
    strategies: Sequence[str],
    seeds: Sequence[int],
    go: RunAll[Result],
    *,
    command: str,
    suited: Suited | None,
    progress: bool | None,
    callbacks: Sequence[Callback],
) -> tuple[Setup, Sequence[StudyRun], Result]:
    """Prepare a study, and run it with progress and callbacks.

    ``suited``: function that replaces default strategies that do not support the data.
    """
    classes = request.collected.classes
    setup = Setup(request.config, folder, dataset=request.dataset, classes=dict(classes))
    with lend(classes):
        setup, first = prepare_study(setup, strategies, seeds[0], suited=suited)
        if suited is not None:
            strategies = setup.config.strategies
        cells = list_runs(setup.config, strategies, seeds)
        open_study_folder(setup, cells, command, classes)
        keep_facts(setup.out, first.dataset)
        with (
            ProgressLine(setup.config, cells, progress) as watch,
            CallbackList(callbacks, setup.config, cells, warn_of_callback) as output,
        ):
            watch.tell(describe_prepared(setup, first, cells))
            result = go(setup, cells, output.beside(watch), watch.tell)
            output.end_with_page(lambda: write_page(setup.out))
    return setup, cells, result


def write_page(folder: Path, out: str | Path | None = None) -> Path:
    from fallow.report.page import write_report

    return write_report([folder], out, papers=load_papers())


def warn_of_callback(text: str) -> None:
    """Warn that a callback has failed; the run continues without it."""
    warnings.warn(text, RuntimeWarning, stacklevel=2)


def make_folder(out: str | Path | None) -> Path:
    """Return the folder for the results, or a temporary one."""
    if out is None:
        return Path(tempfile.mkdtemp(prefix="fallow-"))
    if Path(out).is_file():
        raise ValueError(f"out is {str(out)!r}, which is a file; give the path of a folder")
    return Path(out)


def read_run(setup: Setup, cell: StudyRun, *, is_kept: bool) -> Run:
    """Read a finished run of a study from its folder."""
    import pandas as pd

    path = cell.folder(setup.out)
    partition = json.loads((path / "partition.json").read_text(encoding="utf-8"))
    sites = tuple(partition["sites"])
    cells = read_study(setup.out, load_paper_results()).of(cell.strategy)
    by_seed = {result.seed: result for result in cells}
    records = [dict(record) for record in by_seed[cell.seed].records]
    folder = None
    if is_kept:
        folder = setup.out
    return Run(
        config=variant(setup.config, cell.strategy),
        seed=cell.seed,
        records=pd.DataFrame(records),
        labels=_load_labels(path, sites),
        sites=sites,
        folder=folder,
        saved=load_tree(path / "model.safetensors", path),
        _setup=setup,
    )


def _load_labels(folder: Path, sites: Sequence[SiteId]) -> pd.DataFrame:
    """Load all acquired labels, in order of acquisition."""
    import pandas as pd

    columns = ["site", "row", "value", "cycle", "weight", "probability", "is_validation"]
    rows: list[dict[str, object]] = []
    # A one-pass strategy has one event log per budget; the last log has all labels.
    event_logs = [
        *folder.glob("event_log.sqlite"),
        *folder.glob("budget-*/event_log.sqlite"),
    ]
    if event_logs:
        # numerically: "budget-10" after "budget-9"
        last = max(event_logs, key=lambda path: (len(path.parent.name), path.parent.name))
        event_log = EventLog(last)
        try:
            for site in sites:
                for label in event_log.load_labels(site):
                    row: dict[str, object] = {"site": site}
                    rows.append(row | label._asdict())
        finally:
            event_log.close()
    table = pd.DataFrame(rows, columns=columns)
    return table.sort_values(["cycle", "site"], kind="stable", ignore_index=True)


@final
@dataclass(frozen=True, eq=False, repr=False)
class Run:
    """Result of `fallow.run`.

    Attributes
    ----------
    config : ExperimentConfig
        Experiment configuration.
    seed : int
        Seed of the run.
    records : DataFrame
        One row per evaluation, with ``cycle``, ``round``, ``labeled`` (number of labels),
        ``accuracy`` (0 to 1) or ``mse`` (in units of the variance of the targets), ``seconds``,
        ``bytes_up``, ``bytes_down``, and labels by site and class.
    labels : DataFrame
        One row per acquired label: site, row (index at the site, as in `Federation.rows`),
        value (class ID or target), cycle (-1: initial labeled set) and weight.
    sites : tuple of str
        Names of all participating sites.
    folder : Path or None
        Folder of the run, or None if it was not stored.
    saved : TrainedModel
        Weights and preprocessing, as stored in the model file.

    Examples
    --------
    >>> import fallow as fl
    >>> run = fl.run(
    ...     "digits", training="fedavg", model="linear", cycles=0, rounds=1, progress=False
    ... )
    >>> (
    ...     run.records[["cycle", "labeled"]].values.tolist(),
    ...     run.predict_proba(fl.load("digits").x_test).shape,
    ... )
    ([[0, 150]], (359, 10))
    """

    config: ExperimentConfig
    seed: int
    records: pd.DataFrame
    labels: pd.DataFrame
    sites: tuple[SiteId, ...]
    folder: Path | None
    saved: TrainedModel
    _setup: Setup

    def __repr__(self) -> str:
        last = self.records.iloc[-1]
        phases = self.records["cycle"].nunique()
        return (
            f"Run({self.config.strategy} on {self.config.data}, seed {self.seed}: {phases} phases, "
            f"{last['labeled']} labels, {_score(last)}{_baseline(last)})"
        )

    def _repr_html_(self) -> str:
        has_values = self.records.notna().any()
        shown = [name for name in SHOWN if has_values.get(name, False)]
        table: str = self.records[shown].to_html(index=False, float_format="%.4g")
        return f"<p>{escape_text(repr(self))}</p>{table}"

    @cached_property
    def model(self) -> nn.Module | dict[str, nn.Module]:
        """Trained module in evaluation mode, or one module per site for personalized models.

        The module expects encoded and standardized features.  `predict` applies both steps.  To get a
        module that takes raw examples, train a network: ``fallow.run(federation, model="mlp")``.
        """
        if self.saved["state"] is not None:
            return self._load(self.saved["state"])
        sites: dict[str, State] = self.saved["sites"]
        return {site: self._load(state) for site, state in sites.items()}

    def _load(self, state: State) -> nn.Module:
        with lend(self._setup.classes):
            return LoadedModel(self.config, {**self.saved, "state": state}, OWN).module

    @property
    def classes(self) -> tuple[str, ...]:
        """Class names, by class ID; empty for regression."""
        return tuple(self.saved["example_spec"]["classes"])

    @property
    def label_names(self) -> tuple[str, ...]:
        """Names of several labels per example; empty for other tasks."""
        return tuple(self.saved["example_spec"].get("labels", ()))

    def predict(self, rows: Any, site: str | None = None) -> npt.NDArray[Any]:
        """Predict the class name or the target of each example.

        For several labels, it is 0 or 1 for each of `label_names`.

        Parameters
        ----------
        rows : DataFrame or array-like of shape (n, ...)
            Examples, with the columns or the shape of the training data.
        site : str, optional
            Site whose model predicts, if models are personalized.

        Returns
        -------
        ndarray of shape (n,) or (n, n_labels)
            Class names, targets, or answers to several labels.

        Raises
        ------
        ValueError
            If the shape is wrong, a feature is missing, or the site is unknown.
        """
        with lend(self._setup.classes):
            return self._trained(site).predict(rows)

    def predict_proba(self, rows: Any, site: str | None = None) -> npt.NDArray[np.float64]:
        """Return class probabilities of shape (n, n_classes), in the order of `classes`.

        For several labels, it is the probability of each, in the order of `label_names`.

        Parameters
        ----------
        rows : DataFrame or array-like of shape (n, ...)
            Examples, with the columns or the shape of the training data.
        site : str, optional
            Site whose model predicts, if models are personalized.
        """
        with lend(self._setup.classes):
            return self._trained(site).predict_proba(rows)

    def predict_set(
        self, rows: Any, coverage: float | None = None, site: str | None = None
    ) -> npt.NDArray[np.bool_]:
        """Return prediction sets, which contain the class with the chosen coverage.

        A set with several classes, or with none, means "cannot tell".  The coverage holds for new
        examples that are distributed like the test examples of all sites together (split conformal
        prediction).  At a single site, it can be lower.

        Parameters
        ----------
        rows : DataFrame or array-like of shape (n, ...)
            Examples.
        coverage : float, optional
            Share of examples whose set contains their class.  Default: the setting ``coverage`` of
            the run, which this method needs in any case.
        site : str, optional
            Site whose model predicts, if models are personalized.

        Returns
        -------
        ndarray of bool of shape (n, n_classes)
            Whether each class is in the set, in the order of `classes`.

        Raises
        ------
        ValueError
            If the run has no setting ``coverage``, or too few test examples for it.

        Examples
        --------
        >>> import fallow as fl
        >>> run = fl.run("digits", encoder="identity", cycles=0, coverage=0.9)
        >>> sets = run.predict_set(fl.load("digits").x_test, coverage=0.99)
        >>> sets.shape, bool((sets.sum(1) > 1).any())
        ((359, 10), True)
        """
        with lend(self._setup.classes):
            return self._trained(site, coverage).predict_set(rows)

    def predict_interval(
        self, rows: Any, coverage: float | None = None, site: str | None = None
    ) -> npt.NDArray[np.float64]:
        """Return the bounds of prediction intervals of shape (n, 2). See `predict_set`.

        Parameters
        ----------
        rows : DataFrame or array-like of shape (n, ...)
            Examples, with the columns or the shape of the training data.
        coverage : float, optional
            Share of examples whose interval contains their target.  Default: the setting ``coverage``.
        site : str, optional
            Site whose model predicts, if models are personalized.
        """
        with lend(self._setup.classes):
            return self._trained(site, coverage).predict_interval(rows)

    def _trained(self, site: str | None, coverage: float | None = None) -> LoadedModel:
        """Return the model of a site, with the prediction sets of a coverage."""
        saved: TrainedModel = {**self.saved, "state": self.state_of(site)}
        if coverage is not None and self.config.coverage is not None:
            check_coverage(coverage)
            scores = self.records.iloc[-1]["prediction_sets"]
            saved["prediction_sets"] = build_prediction_sets(
                read_nonconformity(scores, not self.classes), coverage
            )
        return LoadedModel(self.config, saved, OWN)

    def find_label_issues(self, n: int | None = None) -> pd.DataFrame:
        """Rank the acquired labels by how much the examples of all sites contradict them.

        Each label is compared with the exact prediction of the model without this label, for
        training with `ClosedForm`.  λ and the weights of the other examples are unchanged.  The
        method reads the examples of a simulation, and nothing leaves a site.  It is not yet
        available for studies at real sites.

        Parameters
        ----------
        n : int, optional
            Number of labels to return.  Default: all.

        Returns
        -------
        DataFrame
            One row per label, the most suspicious first: site, row (index at the site, as in
            `Federation.rows`), label, suggested (leave-one-out prediction) and score.  For classes,
            the score is the leave-one-out output of the label minus the largest other one, and the
            smallest comes first.  For regression, it is the absolute studentized leave-one-out
            residual, and the largest comes first.

        Raises
        ------
        ValueError
            If the run used another training algorithm or noise, or has too few labels.

        Notes
        -----
        Classes with few labels rank high, because the remaining labels describe their class
        poorly.  With ``unlabeled="auto"``, predictions are those of the model without unlabeled
        examples, because soft labels depend on every label.

        Examples
        --------
        >>> import fallow as fl
        >>> run = fl.run("digits", encoder="identity", cycles=0)
        >>> issues = run.find_label_issues(n=20)
        >>> issues.columns.tolist(), len(issues)
        (['site', 'row', 'label', 'suggested', 'score'], 20)
        """
        if n is not None:
            n = read_whole(n, "n", "give a whole number of labels, 1 or more", least=1)
        with lend(self._setup.classes):
            ranked = rank_labels(self, self._setup)
        if n is None:
            return ranked
        return ranked.head(n)

    def save(
        self,
        folder: str | Path,
        *,
        site: str | None = None,
        license: str | None = None,
        title: str = "",
    ) -> Path:
        """Save the trained model in the layout of a Hugging Face repository.

        The folder contains ``model.safetensors`` (weights), ``config.json`` (preprocessing) and
        ``README.md`` (model card).  No file contains pickled objects, and nothing is uploaded.
        `fallow.load_model` reads the folder.

        Parameters
        ----------
        folder : str or Path
            Destination.
        site : str, optional
            Site whose model is saved, if models are personalized.
        license : str, optional
            License identifier of the Hugging Face Hub, such as "apache-2.0".  Default: none.
        title : str, optional
            Title of the model card.  Default: name of the data.

        Returns
        -------
        Path
            The folder.

        Raises
        ------
        ValueError
            If the license is not an identifier, or `predict` does not support the model.
        """
        path = Path(folder)
        save_run(self, path, site, license, title)
        return path

    def export(
        self, file: str | Path, *, site: str | None = None, with_encoder: bool = True
    ) -> Path:
        """Export encoder, feature scaling and network to one file.

        The file has an input ``examples`` of shape (n, ...) and an output ``probabilities`` of shape
        (n, n_classes), or ``predictions`` of shape (n,) for regression.  Its metadata contains the
        names of classes and columns.

        Parameters
        ----------
        file : str or Path
            Destination with the suffix ``.onnx`` (ONNX) or ``.pt2`` (`torch.export`).
        site : str, optional
            Site whose model is exported, if models are personalized.
        with_encoder : bool, default=True
            Whether to include the encoder.  If False, the input is the output of the encoder.

        Returns
        -------
        Path
            The file.

        Examples
        --------
        >>> import tempfile
        >>> import fallow as fl
        >>> run = fl.run("digits", encoder="identity", cycles=0)
        >>> run.export(f"{tempfile.mkdtemp()}/model.onnx").name
        'model.onnx'
        """
        with lend(self._setup.classes):
            return self._trained(site).export(file, with_encoder=with_encoder)

    def state_of(self, site: str | None = None) -> State:
        """Return the weights as flat vectors: those of the global model, or of one site.

        Parameters
        ----------
        site : str, optional
            Site, if models are personalized.  Default: the global model.
        """
        with lend(self._setup.classes):
            trained_by = methods_of(self.config)["training"]
        if isinstance(trained_by, CustomPrediction):
            raise ValueError(
                f"{self.config.training} predicts with the labeled examples of a site, "
                "which a run does not store; the scores are in run.records"
            )
        if site is not None and site not in self.sites:
            raise ValueError(
                f"there is no site {site!r}; the run had {join_some(self.sites)}"
            )
        common: State | None = self.saved["state"]
        own: dict[str, State] = self.saved["sites"]
        if site is not None and (own or common is None):
            if site not in own:
                raise ValueError(
                    f"site {site!r} has no personalized model; sites with one: "
                    f"{join_some(list(own))}"
                )
            return own[site]
        if is_untrained(self.config):
            raise ValueError("nothing was trained (training is none), so there is no model")
        if common is None:
            raise ValueError(
                "each site has a personalized model; choose one with site=, one of "
                f"{join_some([*own])}"
            )
        return common

    @property
    def revealed(self) -> pd.DataFrame:
        """Return the disclosure log: one row for each kind of message that left the sites.

        Returns
        -------
        DataFrame
            Columns: kind of instruction (``kind``), client function (``function``),
            description (``description``), bytes up and down, number of sites, number of
            exchanges, and epsilon spent.
        """
        import pandas as pd

        return pd.DataFrame(list(self.records.iloc[-1]["revealed"]))

    def cite(self) -> str:
        """Return BibTeX entries of Fallow and of the algorithms used in this run.

        >>> import fallow as fl
        >>> run = fl.run(
        ...     "digits", "badge", training="fedavg", cycles=0, rounds=1, progress=False
        ... )
        >>> "Deep Batch Active Learning" in run.cite()
        True
        """
        with lend(self._setup.classes):
            shape = tuple(self.saved["example_spec"]["shape"])
            return cite_strategies(self.config, [str(self.config.strategy)], shape, OWN)

    def report(self, out: str | Path) -> Path:
        """Write the report page of a stored run (``out=`` of `run`) and return its path.

        Parameters
        ----------
        out : str or Path
            File of the page.
        """
        if self.folder is None:
            raise ValueError(
                "this run was not stored; use fl.run(..., out=FOLDER) to write a report"
            )
        return write_page(self.folder, out)


SHOWN = (
    "cycle",
    "round",
    "labeled",
    "accuracy",
    "balanced_accuracy",
    "mse",
    "distance",
    "seconds",
)


def _score(row: pd.Series) -> str:
    accuracy = row.get("accuracy")
    if accuracy is not None and not np.isnan(accuracy):
        return f"accuracy {accuracy:.2f}"
    mse = row.get("mse")
    if mse is not None and not np.isnan(mse):
        return f"mse {mse:.3g}"
    distance = row.get("distance")
    if distance is not None:
        return f"distance {distance:.3g} (random: {row['random_distance']:.3g})"
    return "no score"


def _baseline(row: pd.Series) -> str:
    """Return a note if the score does not exceed that of a constant prediction."""
    majority = row.get("majority")
    accuracy = row.get("accuracy")
    if majority is not None and accuracy is not None and accuracy <= majority:
        return f"; predicting the majority class has {majority:.2f}"
    mse = row.get("mse")
    if row.get("target_variance") and mse is not None and mse >= 1:
        return "; predicting the mean has 1"
    return ""


def escape_text(text: str) -> str:
    """Escape text for HTML."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
