"""Callbacks for MLflow, Weights & Biases and TensorBoard.

Each tracker requires its package, installed by the extra of the same name.  Configure the
destination by the environment variables of the package.  The reason of a failure is not logged,
since it may quote an example.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Self, final

from fallow.core.optional import import_optional
from fallow.study.callbacks import Callback, TrackedRun

if TYPE_CHECKING:
    from mlflow.entities import Run as MLflowRun
    from torch.utils.tensorboard import SummaryWriter
    from wandb import Run as WandBRun

PARAMS_PER_CALL = 100
"""Number of parameters that MLflow accepts in one call."""
REPORT = "report"
"""Name of the report page in a tracker, and of the additional run that has it."""


@final
class MLflow(Callback):
    """Log each run of a study to MLflow (``fallow-trackers[mlflow]``).

    The report page is an artifact of the run, or of an additional run if there are several.

    Parameters
    ----------
    uri : str, optional
        Tracking URI.  Default: ``MLFLOW_TRACKING_URI``.
    experiment : str, optional
        Name of the experiment.  Default: name of the study.

    Raises
    ------
    ValueError
        If the package is not installed, or the tracking server is not available.
    """

    def __init__(self, uri: str | None = None, experiment: str | None = None) -> None:
        import_optional("mlflow", "fallow-trackers[mlflow]", "tracking by MLflow")
        from mlflow.exceptions import MlflowException
        from mlflow.tracking import MlflowClient

        try:
            self._client = MlflowClient(uri)
        except MlflowException as error:
            raise ValueError(f"MLflow cannot store runs: {error}") from error
        self._experiment = experiment
        self._runs: dict[TrackedRun, str] = {}  # to MLflow's name of the run
        self._last: TrackedRun | None = None

    def begin_run(self, run: TrackedRun) -> None:
        from mlflow.entities import Param

        made = self._create_run(run.study, run.name)
        self._runs[run] = made.info.run_id
        self._last = run
        parameters = [Param(name, str(value)) for name, value in run.parameters.items()]
        for first in range(0, len(parameters), PARAMS_PER_CALL):
            self._client.log_batch(
                made.info.run_id, params=parameters[first : first + PARAMS_PER_CALL]
            )

    def take_scores(self, run: TrackedRun, cycle: int, scores: Mapping[str, float]) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        metrics = [Metric(name, value, now, cycle) for name, value in scores.items()]
        self._client.log_batch(self._runs[run], metrics=metrics)

    def end_run(self, run: TrackedRun, reason: str | None) -> None:
        status = "FINISHED"
        if reason is not None:
            status = "FAILED"
        self._client.set_terminated(self._runs[run], status)

    def end(self, page: Path | None) -> None:
        if page is None or self._last is None:
            return
        if self._last.is_alone:
            self._client.log_artifact(self._runs[self._last], str(page))
            return
        made = self._create_run(self._last.study, REPORT)
        self._client.log_artifact(made.info.run_id, str(page))
        self._client.set_terminated(made.info.run_id, "FINISHED")

    def _create_run(self, study: str, name: str) -> MLflowRun:
        """Create a run in the experiment, and the experiment if it does not exist."""
        wanted = self._experiment or study
        experiment = self._client.get_experiment_by_name(wanted)
        if experiment is None:
            number = self._client.create_experiment(wanted)
        else:
            number = experiment.experiment_id
        return self._client.create_run(number, run_name=name)


@final
class WandB(Callback):
    """Log each run of a study to Weights & Biases (``fallow-trackers[wandb]``), grouped by study.

    W&B is configured to record no command line, output, code, git state or host name.  The report page
    is an artifact of the run, or of an additional run if there are several.

    Parameters
    ----------
    project : str, default="fallow"
        Project.  Set the entity and the mode by ``WANDB_ENTITY``, ``WANDB_MODE=offline`` and
        ``WANDB_DIR``.

    Raises
    ------
    ValueError
        If the package is not installed.
    """

    def __init__(self, project: str = "fallow") -> None:
        import_optional("wandb", "fallow-trackers[wandb]", "tracking by Weights & Biases")
        self._project = project
        self._runs: dict[TrackedRun, WandBRun] = {}
        self._study = ""

    def begin_run(self, run: TrackedRun) -> None:
        self._study = run.study
        self._runs[run] = self._open_run(run.study, run.name, run.parameters)

    def take_scores(self, run: TrackedRun, cycle: int, scores: Mapping[str, float]) -> None:
        self._runs[run].log({"cycle": cycle, **scores}, step=cycle)

    def end_run(self, run: TrackedRun, reason: str | None) -> None:
        opened = self._runs[run]
        if reason is not None:
            del self._runs[run]
            opened.finish(exit_code=1)
        elif not run.is_alone:  # a single run also stores the page
            del self._runs[run]
            opened.finish()

    def end(self, page: Path | None) -> None:
        import wandb

        left = list(self._runs.values())
        self._runs.clear()
        if page is not None and self._study:
            if not left:
                left = [self._open_run(self._study, REPORT, {})]
            artifact = wandb.Artifact(f"{_as_name(self._study)}-{REPORT}", type=REPORT)
            artifact.add_file(str(page))
            left[0].log_artifact(artifact)
        for opened in left:
            opened.finish()

    def _open_run(
        self, study: str, name: str, parameters: Mapping[str, str | int | float | bool]
    ) -> WandBRun:
        import wandb

        quiet = wandb.Settings(
            console="off",
            disable_code=True,
            disable_git=True,
            disable_job_creation=True,
            host="unnamed",
            save_code=False,
            silent=True,
            x_disable_machine_info=True,
            x_disable_meta=True,
            x_disable_stats=True,
        )
        return wandb.init(
            project=self._project,
            group=study,
            name=name,
            config=dict(parameters),
            reinit="create_new",  # runs of a study may be in progress at the same time
            settings=quiet,
        )


@final
class TensorBoard(Callback):
    """Log each run of a study to TensorBoard event files (``fallow-trackers[tensorboard]``).

    Show them with ``tensorboard --logdir FOLDER``.  TensorBoard stores no files, so it shows the
    path of the report page.

    Parameters
    ----------
    folder : str or Path
        Folder that contains one subfolder per run.

    Raises
    ------
    ValueError
        If the package is not installed.
    """

    def __init__(self, folder: str | Path) -> None:
        import_optional(
            "tensorboard", "fallow-trackers[tensorboard]", "writing for TensorBoard"
        )
        self._folder = Path(folder)
        self._writers: dict[TrackedRun, SummaryWriter] = {}

    @classmethod
    def for_study(cls, folder: Path) -> Self:
        """Write to the subfolder ``tensorboard`` of the study."""
        return cls(folder / "tensorboard")

    def begin_run(self, run: TrackedRun) -> None:
        path = self._folder / run.strategy.replace("/", "_") / f"seed-{run.seed}"
        writer = self._open_writer(path)
        self._writers[run] = writer
        rows = [f"| {name} | {value} |" for name, value in run.parameters.items()]
        table = "\n".join(["| setting | value |", "|---|---|", *rows])
        writer.add_text("parameters", table)

    def take_scores(self, run: TrackedRun, cycle: int, scores: Mapping[str, float]) -> None:
        writer = self._writers[run]
        for name, value in scores.items():
            writer.add_scalar(name, value, cycle)
        writer.flush()

    def end_run(self, run: TrackedRun, reason: str | None) -> None:
        self._writers.pop(run).close()

    def end(self, page: Path | None) -> None:
        if page is not None:
            writer = self._open_writer(self._folder)
            writer.add_text(REPORT, str(page.absolute()))
            writer.close()

    @staticmethod
    def _open_writer(folder: Path) -> SummaryWriter:
        from torch.utils.tensorboard import SummaryWriter

        return SummaryWriter(str(folder))


def _as_name(text: str) -> str:
    """Convert text to a valid artifact name of W&B.

    >>> _as_name("ahfal/größe, again")
    'ahfal-gr--e--again'
    """
    return re.sub(r"[^a-zA-Z0-9_.-]", "-", text)
