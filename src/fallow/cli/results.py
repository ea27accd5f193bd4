"""``fallow report``, ``export``, ``forecast`` and ``predict``: results of a study."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from fallow.cli import options as opt
from fallow.cli.terminal import Spinner
from fallow.core.optional import check_full_install
from fallow.core.refusal import explain_errors
from fallow.deployment.folders import is_real
from fallow.study.folder import check_studies, check_study

if TYPE_CHECKING:
    from fallow.core.names import NamePolicy


def check_trained(folder: Path) -> Path:
    """Return the folder of a study, a site or a coordinator; raise ValueError for another."""
    if is_real(folder):
        return folder
    return check_study(folder)


Query = Annotated[
    str | None,
    typer.Option(help="Strategy whose model is used (default: the reference of the study)"),
]
Metric = Annotated[
    str | None,
    typer.Option(
        help="Metric in tables, curves and tests (default: accuracy or squared error)"
    ),
]
Studies = Annotated[
    list[Path], typer.Argument(help="Study folders", callback=check_studies)
]
Output = Annotated[Path | None, typer.Option("--out", "-o", help="Output file")]


@opt.shows("fallow.cli.objects:WrittenReport")
def report(
    studies: Studies,
    out: Output = None,
    notebook: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.ipynb",
            help="Also write a notebook that draws the curves and tables",
        ),
    ] = None,
    metric: Metric = None,
    quiet: opt.Quiet = False,
    as_json: opt.AsObject = False,
) -> None:
    """Write the report of one or more studies."""
    check_full_install("fallow report")
    from fallow.cli.objects import WrittenReport
    from fallow.configs.papers import load_papers
    from fallow.report.notebook import write_notebook
    from fallow.report.page import write_report

    restrict_permissions_of(*studies)
    with Spinner(opt.console(quiet=quiet or as_json), "writing the report page"):
        if notebook is not None:  # first, since its name may be rejected
            write_notebook(studies, notebook, papers=load_papers())
        page = write_report(studies, out, metric=metric, papers=load_papers())
    result = WrittenReport(str(page), opt.as_text(notebook))
    lines = [f"Report page: {result.report}"]
    if result.notebook is not None:
        lines.insert(0, f"Notebook: {result.notebook}")
    opt.tell(lines, result, quiet=quiet, as_json=as_json)


@opt.shows("fallow.cli.objects:WrittenFile")
def export(
    study: Annotated[Path, typer.Argument(help="Study folder", callback=check_study)],
    to: Annotated[
        Literal["csv", "parquet", "markdown", "latex"],
        typer.Option(
            help="csv and parquet write all records; markdown and latex the final table"
        ),
    ] = "csv",
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Output file; - is the standard output"),
    ] = None,
    metric: Metric = None,
    quiet: opt.Quiet = False,
    as_json: opt.AsObject = False,
) -> None:
    """Write the records or the final table of a study to a file."""
    check_full_install("fallow export")
    from fallow.cli.objects import WrittenFile
    from fallow.configs.papers import load_papers
    from fallow.report.export import export_content, export_study

    if metric is not None and to in ("csv", "parquet"):
        raise ValueError(
            f"--metric is for tables, and {to} has all records with all metrics; omit it, or choose "
            "markdown or latex"
        )
    restrict_permissions_of(study)
    if str(out) == "-":
        if as_json:
            raise ValueError(
                "--json and --out - both write to the standard output; omit one"
            )
        sys.stdout.buffer.write(
            export_content(study, to, metric=metric, papers=load_papers())
        )
        return
    with Spinner(opt.console(quiet=quiet or as_json), "reading the records"):
        path = export_study(study, to, out, metric=metric, papers=load_papers())
    result = WrittenFile(str(path))
    opt.tell([f"Wrote {result.file}"], result, quiet=quiet, as_json=as_json)


@opt.shows("fallow.study.forecast:ForecastResults")
def forecast(
    study: Annotated[
        Path,
        typer.Argument(
            help="Study folder; the study may still be running", callback=check_study
        ),
    ],
    more: Annotated[
        int, typer.Option(min=1, help="Number of additional labels to forecast for")
    ] = 200,
    to: Annotated[
        float | None,
        typer.Option(
            metavar="SCORE",
            help="Target score to reach: an accuracy in percent, or an error",
        ),
    ] = None,
    strategy: Annotated[
        str | None, typer.Option(help="Query strategy (default: all)")
    ] = None,
    by: Annotated[
        Literal["auto", "test", "evaluation", "left-out"],
        typer.Option(
            help="Scores to extrapolate; auto: the first of these with enough cycles"
        ),
    ] = "auto",
    picture: Annotated[
        Path | None,
        typer.Option(help="Plot one strategy to an .svg, .png or .pdf file"),
    ] = None,
    quiet: opt.Quiet = False,
    as_json: opt.AsObject = False,
) -> None:
    """Extrapolate the learning curve of a study.

    For example:

    fallow forecast runs/mine --more 200 --to 95
    """
    check_full_install("fallow forecast")
    from fallow.configs.papers import load_paper_results
    from fallow.report.figures.study import draw_forecast
    from fallow.report.final_table import label_of
    from fallow.study.forecast import ForecastResults, forecast_study
    from fallow.study.reading import read_study

    restrict_permissions_of(study)
    values = read_study(study, load_paper_results())
    forecasts = forecast_study(values, by)
    if strategy is not None:
        forecasts = [one for one in forecasts if one.strategy == strategy]
    if not forecasts:
        known = ", ".join(values.strategies)
        raise ValueError(
            f"{study} has no scores of {strategy or 'any strategy'} yet; it has {known}"
        )
    target = to
    if to is not None and not values.is_regression:
        target = to / 100
    if picture is not None and len(forecasts) > 1:
        names = ", ".join(one.strategy for one in forecasts)
        raise ValueError(f"--picture draws one strategy; name it with --strategy: {names}")
    result = ForecastResults(tuple(one.result(more, target) for one in forecasts))
    lines = []
    for item in result.forecasts:
        label = label_of(item.strategy, values.study)
        lines.append(f"{label}: {' '.join(item.sentences)}")
    if picture is not None:
        figure = draw_forecast(forecasts[0], more, target)
        if figure is None:
            raise ValueError(f"there is nothing to plot: {lines[0]}")
        with explain_errors(f"{picture} cannot be drawn: "):
            figure.savefig(picture)
        lines.append(f"Wrote {picture}")
    opt.tell(lines, result, quiet=quiet, as_json=as_json)


@opt.shows("fallow.cli.objects:WrittenPredictions")
def predict(
    study: Annotated[
        Path,
        typer.Argument(help="Folder of a study or of a real site", callback=check_trained),
    ],
    data: Annotated[
        Path,
        typer.Argument(
            help="Examples: a .csv, .parquet or .npz file, or a folder of images"
        ),
    ],
    strategy: Query = None,
    seed: Annotated[
        int | None,
        typer.Option(help="Seed of the run whose model is used (default: the first)"),
    ] = None,
    site: Annotated[
        str | None, typer.Option(help="Site whose model is used, for personalized models")
    ] = None,
    out: Output = None,
    own_code: opt.OwnCode = False,
    quiet: opt.Quiet = False,
    as_json: opt.AsObject = False,
) -> None:
    """Predict with the model of a finished run, and write a CSV or Parquet file."""
    from fallow.cli.objects import WrittenPredictions
    from fallow.core.wording import count_noun
    from fallow.deployment.site.predict import predict_at
    from fallow.study.trained import predict_file

    restrict_permissions_of(study)
    with Spinner(opt.console(quiet=quiet or as_json), f"predicting the examples of {data}"):
        if is_site(study, strategy, seed, site):
            file = predict_at(study, data, out)
        else:
            policy = choose_policy(study, own_code=own_code)
            file = predict_file(study, data, strategy, seed, out, site, policy)
    result = WrittenPredictions(
        str(file.path), file.rows, file.lacking, file.unclear, file.warnings
    )
    line = f"Wrote {count_noun(result.rows, 'prediction')} to {result.file}"
    if result.lacking:
        line += f"; no prediction for {count_noun(result.lacking, 'example')} with a missing feature"
    lines = [line]
    if result.unclear is not None:
        lines.append(
            f"Cannot tell: {count_noun(result.unclear, 'example')} whose prediction set has several "
            "classes or none"
        )
    lines += [f"Warning: {sentence}" for sentence in file.warnings]
    if file.no_sets is not None:
        lines.append(f"No prediction sets: {file.no_sets}")
    opt.tell(lines, result, quiet=quiet, as_json=as_json)


def restrict_permissions_of(*folders: Path) -> None:
    """Restrict the output to the owner if the study is one of real sites."""
    if any(is_real(folder) for folder in folders):
        opt.restrict_permissions()


def is_site(study: Path, strategy: str | None, seed: int | None, site: str | None) -> bool:
    """Return whether the folder is a real site. Raises ValueError if a model is then selected."""
    from fallow.deployment.site.folder import SETTINGS

    if not (study / SETTINGS).exists():
        return False
    if strategy is not None or seed is not None or site is not None:
        raise ValueError(
            f"{study} is a site, which has one model; omit --strategy, --seed and --site"
        )
    return True


def choose_policy(study: Path, *, own_code: bool) -> NamePolicy:
    """Return the classes that a study may name: any if the user confirms that it is their own."""
    from fallow.cli.paths import use_current_folder
    from fallow.core.names import OWN

    if not own_code:
        return find_policy(study)
    use_current_folder()
    return OWN


def find_policy(study: Path) -> NamePolicy:
    """Return the classes that a study may name: at a coordinator, those it was created with."""
    from fallow.core.names import BUILT_IN
    from fallow.deployment.coordinator.folder import COORDINATOR_FILE, CoordinatorFolder

    if not (study / COORDINATOR_FILE).exists():
        return BUILT_IN
    return CoordinatorFolder.open(study).names
