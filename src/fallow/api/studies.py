"""Compare query strategies under the same seeds."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Any, Literal, Unpack, final

from fallow.api.federation import Federation
from fallow.api.keywords import CompareSettings, Strategies, StrategyLike
from fallow.api.objects import plain, read_seed, read_whole
from fallow.api.runs import Run, carry_out, escape_text, make_folder, read_run
from fallow.api.settings import check_instruction, read_request
from fallow.configs.defaults import USUAL_SEEDS, suit_strategies
from fallow.configs.few_labels import RULES, read_table
from fallow.configs.papers import load_paper_results, load_papers
from fallow.core.events import EventHandler
from fallow.core.names import OWN, lend
from fallow.core.optional import check_full_install
from fallow.core.suggestions import explain_function, require_known
from fallow.core.wording import count_noun
from fallow.data import Dataset
from fallow.report.final_table import final_table, label_of
from fallow.report.sentences import describe_cautions, summary
from fallow.report.tables import FRAME, frame_cells, to_latex
from fallow.settings.config import ExperimentConfig, config_from
from fallow.settings.variants import BOUND
from fallow.study.advice import Advice, advise, read_facts
from fallow.study.callbacks import Callback
from fallow.study.cite import cite_study
from fallow.study.forecast import By, Forecast, forecast_study
from fallow.study.reading import read_study as read_records
from fallow.study.records import StudyRecords
from fallow.study.study import run_study
from fallow.study.study_run import Failure, Setup, StudyRun, build_error
from fallow.study.trainers import describe_power

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


def compare(
    federation: Federation | Dataset | str | Path | None = None,
    strategies: Strategies | None = None,
    *,
    seeds: int | Iterable[int] = USUAL_SEEDS,
    out: str | Path | None = None,
    jobs: int = 1,
    config: ExperimentConfig | Mapping[str, Any] | str | Path | None = None,
    reference: StrategyLike | None = None,
    progress: bool | None = None,
    callbacks: Sequence[Callback] = (),
    **settings: Unpack[CompareSettings],
) -> Study:
    """Compare query strategies under the same seeds.

    For each seed, all strategies start from the same partition, initial labeled set and weights.

    Parameters
    ----------
    federation : Federation, Dataset, str or Path
        Federated dataset, or a dataset, or the name or path of one.
    strategies : sequence of query strategies, optional
        Objects, classes or names: ``[fl.Random(), fl.AHFAL(tau=15), "entropy:model=global"]``.
        A name may override settings: ``"margin@training=fedavg@rounds=5"``.  Default: those of the
        configuration, or others that support the task.
    seeds : int or iterable of int, default=7
        Number of seeds, or the seeds.  With fewer than 7, the exact paired test of three comparisons
        cannot reach p = 0.05.  The smallest attainable p is printed before the runs.
    out : str or Path, optional
        Folder for the study.  The same call resumes an interrupted study, and different settings
        are rejected.  Default: nothing is stored.
    jobs : int, default=1
        Number of parallel processes.  It does not affect the results.  On macOS, and with a GPU,
        studies with custom classes run sequentially.
    config : ExperimentConfig, mapping, str or Path, optional
        Experiment configuration that supplies all other settings.
    reference : query strategy, optional
        Strategy that the others are tested against.  Default: random sampling, if included.
    progress, callbacks
        See `fallow.run`.
    **settings
        Any other setting of the experiment configuration, as in `fallow.run`.

    Returns
    -------
    Study

    Raises
    ------
    ValueError
        If a setting is unknown or invalid.  All settings are checked before training starts.
    StorageError
        If all runs fail.  If some fail, a warning reports the first, and ``Study.failures``
        lists all.

    Warns
    -----
    RuntimeWarning
        If the scores may mean nothing, such as those of a model that predicts only one class.

    Examples
    --------
    >>> import fallow as fl
    >>> federation = fl.Federation("digits", "dirichlet:alpha=0.1", sites=4)
    >>> study = fl.compare(
    ...     federation,
    ...     [fl.Random(), "entropy"],
    ...     seeds=2,
    ...     cycles=1,
    ...     training="fedavg",
    ...     rounds=1,
    ... )
    >>> study
    Study(digits: random, entropy; 2 seeds, 4 runs)
    >>> sorted(study.table()["strategy"])
    ['entropy', 'random']
    """
    check_full_install("fl.compare")
    check_instruction(
        federation, strategies, "fl.compare(federation, strategies, ...)", "federation"
    )
    if settings.get("strategy") is not None:
        raise ValueError(
            "compare runs several strategies; give them as fl.compare(federation, strategies)"
        )
    defaults: dict[str, object] = {}
    if config is None:
        defaults["bounds"] = ()  # upper bounds only on request
    value: list[object] = []
    if strategies is not None:
        value = _list_strategies(strategies)
    request = read_request(federation, config, {**defaults, **settings}, value)
    collected = request.collected
    asked = value or request.config.strategies
    texts = [collected.text(strategy) for strategy in asked]
    wanted = _seeds(seeds)
    chosen = request.config
    if not chosen.reference or reference is not None or config is None:
        named = None
        if reference is not None:
            named = collected.text(reference, "reference")
            _check_reference(named, texts, out)
        chosen = config_from({"reference": named}, chosen)
    is_kept = out is not None
    n_jobs = read_whole(
        jobs, "jobs", "give a whole number of runs at the same time", least=1
    )

    def run_all(
        setup: Setup,
        cells: Sequence[StudyRun],
        notify: EventHandler,
        tell: Callable[[str], None],
    ) -> list[Failure]:
        names = {cell.strategy for cell in cells if not cell.strategy.startswith(BOUND)}
        tell(describe_power(len(names), len(wanted)))
        return run_study(setup, cells, n_jobs, notify)

    suited = suit_strategies if strategies is None else None
    folder = make_folder(out)
    try:
        setup, cells, failures = carry_out(
            replace(request, config=chosen),
            folder,
            texts,
            wanted,
            run_all,
            command="fallow.compare",
            suited=suited,
            progress=progress,
            callbacks=callbacks,
        )
        _say(failures, cells)
    except BaseException:
        if not is_kept:
            rmtree(folder, ignore_errors=True)
        raise
    study = Study(setup, tuple(failures), is_kept=is_kept)
    cautions = describe_cautions(study.study_records)
    if cautions:
        warnings.warn(cautions, RuntimeWarning, stacklevel=2)
    if not is_kept:
        weakref.finalize(study, rmtree, folder, ignore_errors=True)
    return study


def _list_strategies(strategies: object) -> list[object]:
    """Return a list of strategies, also for a single one."""
    result = [strategies]
    if isinstance(strategies, Iterable) and not isinstance(strategies, str | Mapping):
        result = list(strategies)
    if not result:
        raise ValueError(
            "there are no strategies to compare; give some, such as [fl.Random()]"
        )
    return result


def _seeds(seeds: Any) -> list[int]:
    value = plain(seeds)
    if isinstance(value, int) and not isinstance(value, bool):
        if value < 1:
            raise ValueError(f"seeds is {value}; it must be at least 1")
        return list(range(value))
    result: list[object] = []
    if isinstance(value, Iterable) and not isinstance(value, str):
        result = list(value)
    if not result:
        raise ValueError(f"seeds is {seeds!r}; give a number of seeds, or whole numbers")
    wanted = [read_seed(seed, "one of seeds") for seed in result]
    twice = [seed for seed in wanted if wanted.count(seed) > 1]
    if twice:
        raise ValueError(f"seeds contains {twice[0]} more than once; give different seeds")
    return wanted


def _say(failures: Sequence[Failure], cells: Sequence[StudyRun]) -> None:
    if not failures:
        return
    error = build_error(failures, len(cells))
    if len(failures) == len(cells):
        raise error
    warnings.warn(str(error), RuntimeWarning, stacklevel=3)


@final
@dataclass(frozen=True, eq=False, repr=False)
class Study:
    """Result of `compare` or `read_study`.

    Attributes
    ----------
    setup : Setup
        Configuration of the study.
    failures : tuple of Failure
        Runs that failed, with the reason.
    is_kept : bool
        Whether the folder of the study is kept after the program ends.
    metric : str or None
        Metric of tables, curves and tests (`with_metric`); None: accuracy or squared error.

    Examples
    --------
    >>> import fallow as fl
    >>> study = fl.compare(
    ...     "digits",
    ...     "random",
    ...     seeds=1,
    ...     cycles=0,
    ...     training="fedavg",
    ...     rounds=1,
    ...     progress=False,
    ... )
    >>> len(study.records), list(study.table().columns[:4])
    (1, ['strategy', 'mean', 'sd', 'difference'])
    >>> study.run("random").seed
    0
    """

    setup: Setup
    failures: tuple[Failure, ...] = ()
    is_kept: bool = True
    metric: str | None = None

    @property
    def study_records(self) -> StudyRecords:
        """Current content of the study's folder."""
        return replace(
            read_records(self.setup.out, load_paper_results()), metric=self.metric
        )

    def with_metric(self, metric: str) -> Study:
        """Return the study with tables, curves and tests of another metric.

        Parameters
        ----------
        metric : str
            One of the study's setting ``metrics``, such as ``"auroc"``.

        Raises
        ------
        ValueError
            If the study has no such metric.

        Examples
        --------
        >>> import fallow as fl
        >>> study = fl.compare(
        ...     "iris",
        ...     ["random", "margin"],
        ...     encoder="identity",
        ...     seeds=2,
        ...     cycles=1,
        ...     metrics=["auroc", "brier"],
        ...     progress=False,
        ... )
        >>> study.with_metric("brier").table().columns[1]
        'mean'
        """
        study = replace(self, metric=metric)
        _ = study.study_records  # raises ValueError for an unknown metric
        return study

    @property
    def folder(self) -> Path | None:
        """Folder of the study, or None if it is not stored."""
        if not self.is_kept:
            return None
        return self.setup.out

    def __repr__(self) -> str:
        study = self.study_records.study
        names = ", ".join(label_of(strategy, study) for strategy in study.strategies)
        if len(names) > 60:
            names = f"{len(study.strategies)} strategies"
        seeds = count_noun(len(study.seeds), "seed")
        runs = count_noun(len(study.strategies) * len(study.seeds), "run")
        text = f"{study.name}: {names}; {seeds}, {runs}"
        if self.failures:
            text += f", {len(self.failures)} failed"
        cautions = describe_cautions(self.study_records)
        if cautions:
            text += f". {cautions}"
        return f"Study({text})"

    def _repr_html_(self) -> str:
        values = self.study_records
        output = escape_text(summary(values, final_table(values)))
        table: str = self.table().to_html(index=False, float_format="%.4g", na_rep="")
        return f"<p>{output}</p>{table}"

    @property
    def records(self) -> pd.DataFrame:
        """One row per evaluation of each run, with the columns of `Run.records`."""
        import pandas as pd

        rows: list[dict[str, object]] = []
        for cell in self.study_records.cells:
            for record in cell.records:
                rows.append({**record, "strategy": cell.strategy, "seed": cell.seed})
        return pd.DataFrame(rows)

    def table(
        self, columns: Literal["default", "all"] | Sequence[str] = "default"
    ) -> pd.DataFrame:
        """Return the results, one row per query strategy, best first.

        Upper bounds come last.  Cells that do not apply are missing.

        Parameters
        ----------
        columns : {"default", "all"} or sequence of str, default="default"
            Columns to return.  "default": ``strategy``, ``mean``, ``sd``, ``difference``, ``low``,
            ``high``, ``p`` and ``p_holm``, rounded for reading.  "all", or names: these columns,
            not rounded.

        Returns
        -------
        DataFrame
            Columns:

            - ``strategy``, ``label``: specification and display name,
            - ``mean``, ``sd``: final score over seeds: accuracy in percent, mean squared error, or
              the metric of `with_metric`,
            - ``seeds``: number of seeds,
            - ``area``: area under the learning curve,
            - ``labels``, ``saved``: number of labels, and percentage saved relative to random,
            - ``difference``, ``low``, ``high``: difference to the reference with its 95 %
              confidence interval (percentage points),
            - ``p``, ``p_holm``: exact Wilcoxon test, without and with Holm's correction,
            - ``wins``, ``ties``, ``losses``: comparison with the reference, by seed.

        Raises
        ------
        ValueError
            If a column is unknown.
        """
        import pandas as pd

        final = final_table(self.study_records)
        cells = [frame_cells(row) for row in final.rows]
        whole = pd.DataFrame(cells, columns=list(FRAME))
        if columns == "all":
            return whole
        if columns == "default":
            return round_for_reading(whole[list(SHOWN)], final.digits)
        names = [columns] if isinstance(columns, str) else list(columns)
        for name in names:
            require_known(name, FRAME, f"the table has no column {name!r}")
        return whole[names]

    def to_latex(self) -> str:
        """Return the final table as a LaTeX ``table``, which needs the package booktabs.

        >>> import fallow as fl
        >>> digits = fl.Federation(fl.load("digits"), sites=3)
        >>> study = fl.compare(
        ...     digits, ["random"], seeds=1, cycles=0, training="fedavg", rounds=1
        ... )
        >>> study.to_latex().splitlines()[0]
        '\\\\begin{table}'
        """
        return to_latex(final_table(self.study_records))

    def cite(self) -> str:
        """Return BibTeX entries of Fallow and of the algorithms used in this study."""
        with lend(self.setup.classes):
            return cite_study(self.setup.out, OWN)

    def run(self, strategy: StrategyLike, seed: int = 0) -> Run:
        """Return one run of the study, with its model.

        Parameters
        ----------
        strategy : query strategy or str
            Query strategy, as given to `compare`.
        seed : int, default=0
            Seed of the run.

        Raises
        ------
        ValueError
            If the run is not finished.
        """
        from fallow.api.objects import ParsedObjects

        cell = StudyRun(ParsedObjects().text(strategy), read_seed(seed))
        path = cell.folder(self.setup.out)
        if not (path / "model.safetensors").exists():
            study = self.study_records.study
            raise ValueError(
                f"the study has no finished run of {cell.strategy} with seed {cell.seed}; its "
                f"strategies are {', '.join(study.strategies)}, its seeds {list(study.seeds)}"
            )
        return read_run(self.setup, cell, is_kept=self.is_kept)

    def report(self, out: str | Path | None = None) -> Path:
        """Write the report page and return its path.

        Parameters
        ----------
        out : str or Path, optional
            File of the page.  Default: ``report.html`` in the study's folder.
        """
        if out is None and not self.is_kept:
            out = "report.html"
        from fallow.report.page import write_report as write_page

        return write_page([self.setup.out], out, metric=self.metric, papers=load_papers())

    def forecast(self, strategy: StrategyLike | None = None, by: By = "auto") -> Forecast:
        """Extrapolate the learning curve of a query strategy.

        Parameters
        ----------
        strategy : query strategy or str, optional
            Strategy to extrapolate, if the study has several.
        by : {"auto", "test", "evaluation", "left-out"}, default="auto"
            Source of the scores: test set, evaluation set, or leave-one-out.  "auto" uses the first
            that has enough scores.

        Returns
        -------
        Forecast
            Forecast with the methods ``gain(more)``, ``reach(target)`` and
            ``sentences(more, target)``.

        Raises
        ------
        ValueError
            If the strategy has no scores, or after `with_metric`.

        Examples
        --------
        >>> import fallow as fl
        >>> federation = fl.Federation("digits", "iid", sites=4)
        >>> study = fl.compare(
        ...     federation,
        ...     "random",
        ...     seeds=1,
        ...     cycles=1,
        ...     training="fedavg",
        ...     rounds=1,
        ...     progress=False,
        ... )
        >>> study.forecast().sentences()[0]
        'Too few scores for a forecast: 2 so far (on test examples), and at least 4 cycles are needed.'
        """
        from fallow.api.objects import ParsedObjects

        if self.metric is not None:
            raise ValueError(
                f"forecast is for accuracy and squared error, not for {self.metric!r}; call it on the "
                "study without with_metric"
            )
        result = {item.strategy: item for item in forecast_study(self.study_records, by)}
        known = ", ".join(result) or "none with a score yet"
        if strategy is None and len(result) == 1:
            (only,) = result.values()
            return only
        if strategy is None:
            raise ValueError(
                f"choose a strategy to forecast, such as forecast(strategy=...): {known}"
            )
        name = ParsedObjects().text(strategy)
        if name not in result:
            raise ValueError(f"the study has no scores of {name}; it has {known}")
        return result[name]

    def advise(self) -> Advice:
        """Recommend a query strategy and a training algorithm for a similar study.

        The recommendation is based on classes, sites and labels in the records, and on the benchmark
        in ``studies/benchmark.md``.

        Returns
        -------
        Advice
            Recommendation with ``strategy``, ``trainer``, ``is_known`` (whether the benchmark is
            conclusive) and ``expected`` (gain of each strategy over random sampling, with confidence
            interval and tasks).

        Raises
        ------
        ValueError
            If the task is regression.

        Examples
        --------
        >>> import fallow as fl
        >>> federation = fl.Federation("digits", "iid", sites=4)
        >>> study = fl.compare(
        ...     federation,
        ...     "random",
        ...     seeds=1,
        ...     cycles=1,
        ...     training="fedavg",
        ...     rounds=1,
        ...     progress=False,
        ... )
        >>> study.advise().trainer
        'closed-form'
        """
        facts, labels = read_facts(self.study_records)
        return advise(read_table(), facts, labels, RULES)

    def plot(self) -> Figure:
        """Plot the learning curves: score over number of labels, mean and spread over seeds."""
        from fallow.report.figures.study import learning_curves

        figure = learning_curves(self.study_records)
        if figure is None:
            raise ValueError(
                "no strategy of the study has a score yet, so there is no curve"
            )
        return figure


SHOWN = ("strategy", "mean", "sd", "difference", "low", "high", "p", "p_holm")
"""Columns of `Study.table` by default, which fit a terminal of 100 characters."""


def round_for_reading(table: pd.DataFrame, digits: int) -> pd.DataFrame:
    """Round scores to ``digits`` decimals, and p values to 2 digits."""
    result = table.copy()
    for name in SHOWN[1:]:
        values = table[name].astype(float)
        if name in ("p", "p_holm"):
            result[name] = values.map(lambda p: float(f"{p:.2g}"))
        else:
            result[name] = values.round(digits)
    return result


def _check_reference(
    reference: str, strategies: Sequence[str], out: str | Path | None
) -> None:
    """Raise ValueError if the reference is not compared, now or earlier in this folder."""
    is_resumed = out is not None and (Path(out) / "study.json").exists()
    if reference not in strategies and not is_resumed:
        raise ValueError(
            f"reference is {reference!r}, which is not compared; add it to the strategies, or use one "
            f"of {', '.join(strategies)}"
        )


@explain_function()
def read_study(folder: str | Path) -> Study:
    """Read a study from its folder.

    The study may still be running, and may have been started from the command line.

    Parameters
    ----------
    folder : str or Path
        Folder of the study.

    Returns
    -------
    Study

    Raises
    ------
    ValueError
        If the folder contains no study.

    Examples
    --------
    >>> import fallow as fl
    >>> fl.read_study("nowhere")
    Traceback (most recent call last):
        ...
    ValueError: nowhere is not a study: ...
    """
    check_full_install("fl.read_study")
    records = read_records(folder, load_paper_results())
    return Study(Setup(config_from(dict(records.study.config)), Path(folder)))


@explain_function()
def write_report(
    studies: Study | str | Path | Iterable[Study | str | Path],
    out: str | Path | None = None,
) -> Path:
    """Write a report page about one or several studies, and return its path.

    Parameters
    ----------
    studies : Study, str, Path, or a list of these
        Stored studies, or their folders.
    out : str or Path, optional
        Output file or folder.  Default: ``report.html`` in the folder of the study, or in the
        current folder for several studies.

    Returns
    -------
    Path
        The page.

    Raises
    ------
    ValueError
        If a folder contains no study, or a study was not stored.

    Examples
    --------
    >>> import fallow as fl
    >>> fl.write_report([])
    Traceback (most recent call last):
        ...
    ValueError: there is no study to report on; give one, or a list of them
    """
    check_full_install("fl.write_report")
    from fallow.report.page import write_report as write_page

    if isinstance(studies, Study | str | Path):
        report = [studies]
    else:
        report = list(studies)
    if not report:
        raise ValueError("there is no study to report on; give one, or a list of them")
    return write_page([_find_folder(study) for study in report], out, papers=load_papers())


def _find_folder(study: Study | str | Path) -> Path:
    if not isinstance(study, Study):
        return Path(study)
    if study.folder is None:
        raise ValueError(f"{study} was not stored; use fl.compare(..., out=FOLDER)")
    return study.folder
