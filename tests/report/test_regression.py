from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.text import Annotation

from fallow.report import tables
from fallow.report.costs import run_details
from fallow.report.figures.study import learning_curves
from fallow.report.final_table import final_table
from fallow.report.regression import errors, is_solved, warnings
from fallow.report.sentences import summary
from fallow.study.names import penalized_training
from fallow.study.records import StudyManifest, StudyRecords
from fallow_papers.fale.sections import controls, printed_tallies, wins
from tests.report.conftest import rewrite
from tests.report.reading import piece, read_study, write_report
from tests.report.regression import FALE, LOCAL, STRATEGIES, write_regression
from tests.report.test_page import parse_page

SECTIONS = [
    "Learning curves",
    "Final scores",
    "Forecast for more labels",
    "Errors over cycles",
    "Wins, ties and losses",
    "Effect of the selection with the same training",
    "Effect of a setting",
    "What left each site",
    "Reproduce this study",
]
PROTEIN = {
    "table": "fale-table2",
    "setting": "protein",
    "protocol": "fale/protein",
    "names": {},
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_regression(tmp_path_factory.mktemp("page") / "a", published=PROTEIN)


@pytest.fixture(scope="module")
def study(root: Path) -> StudyRecords:
    return read_study(root)


@pytest.fixture(scope="module")
def text(root: Path) -> str:
    return write_report([root]).read_text()


def cells(html: str) -> list[list[str]]:
    """Return the rows of a table in part of a page, as text."""
    rows = re.findall(r"<tr.*?</tr>", html)
    return [
        [re.sub("<.*?>", "", c) for c in re.findall(r"<t[hd].*?</t[hd]>", row)]
        for row in rows
    ]


def test_a_page_about_errors_is_valid_and_says_nothing_of_classes(text: str) -> None:
    parse_page(text)
    assert re.findall(r"<h3>(.*?)</h3>", text) == SECTIONS
    words = re.sub("<style>.*?</style>|<.*?>", " ", text, flags=re.DOTALL)
    assert re.search(r"\b(accuracy|points|classes)\b", words) is None


def test_lower_is_better_in_words_and_order(study: StudyRecords) -> None:
    table = final_table(study)
    output = summary(study, table)
    assert output.startswith(
        "FALE has the best final score: a mean squared error of 0.7369 ± 0.0010"
    )
    assert [r.label for r in table.rows][-1] == "FALE-local"
    comparison = {row.strategy: row.comparison for row in table.rows}[FALE]
    assert comparison is not None
    assert comparison.difference < 0
    assert comparison.wins == 4
    notes = " ".join(tables.footnotes(table))
    assert "a negative difference favors the strategy" in notes
    assert "variance of the training targets" in notes


def test_labels_saved_count_the_lower_error(study: StudyRecords) -> None:
    table = final_table(study)
    saved = {row.strategy: row.saved for row in table.rows}
    saved_by_fale = saved[FALE]
    assert saved_by_fale is not None and saved_by_fale > 0
    assert saved[LOCAL] is None  # never as good as random


def test_labels_have_a_column_only_where_strategies_differ_in_them(
    study: StudyRecords, tmp_path: Path
) -> None:
    assert tables.displayed(final_table(study)).frame()["Labels"].tolist() == [
        "240",
        "280",
        "280",
        "280",
        "240",
    ]
    even = read_study(write_regression(tmp_path / "b", STRATEGIES[:3]))
    assert "Labels" not in tables.displayed(final_table(even)).header


def test_areas_are_over_the_labels_that_all_curves_cover(study: StudyRecords) -> None:
    x = np.array(sorted(study.labels("random").values()))
    y = np.array([study.curve("random")[c][3] for c in range(13)])
    inside = x <= 240  # FALE has 20 to 240, random 40 to 280
    expected = np.trapezoid(y[inside], x[inside]) / 200
    assert study.areas("random")[3] == pytest.approx(expected)
    assert study.areas(FALE)[3] < study.areas("random")[3]


@pytest.mark.parametrize(
    ("factor", "shown"), [(1.0, "0.7369"), (0.01, "0.007369"), (1e4, "7369")]
)
def test_four_digits_of_the_best_error_are_shown(
    tmp_path: Path, factor: float, shown: str
) -> None:
    root = write_regression(tmp_path / "a")
    rewrite(root, lambda r, _: {"mse": factor * r["mse"], "target_variance": None})
    table = final_table(read_study(root))
    assert (
        tables.displayed(table)
        .frame()["Final mean squared error"][0]
        .startswith(f"{shown} ± ")
    )


def test_a_csv_keeps_small_errors_whole(tmp_path: Path) -> None:
    root = write_regression(tmp_path / "a")
    rewrite(root, lambda r, _: {"mse": 1e-6 * r["mse"]})
    assert "7.36" in tables.to_csv(final_table(read_study(root)))


def test_of_three_hundred_cycles_five_have_a_column(tmp_path: Path) -> None:
    study = read_study(write_regression(tmp_path / "a", ("random", "lcmd", FALE), 2, 300))
    first, *_ = cells(piece(errors(study, "a")))
    assert first == ["Strategy", *(f"Cycle {c}" for c in (60, 120, 180, 240, 300))]
    assert "cycles 30, 60, 90, 120, 150, 180, 210, 240, 270 and 300" in piece(
        wins(study, "a")
    )


def test_errors_stand_at_equal_labels_too_where_strategies_differ_in_them(
    study: StudyRecords,
) -> None:
    rows = cells(piece(errors(study, "a")))
    assert rows[6] == ["Strategy", *(f"{n} labels" for n in (40, 100, 140, 200, 240))]
    by_cycle = rows[1]
    by_labels = rows[7]
    assert by_cycle == by_labels  # FALE has the fewest: its own checkpoints
    assert rows[3][0] == rows[9][0] == "random + FedAvg"
    assert rows[3][1:] != rows[9][1:]


def test_strategies_with_the_same_labels_have_one_table_by_labels(tmp_path: Path) -> None:
    rows = cells(
        piece(errors(read_study(write_regression(tmp_path / "a", STRATEGIES[:3])), "a"))
    )
    assert rows[0] == ["Strategy", *(f"{n} labels" for n in (80, 140, 180, 240, 280))]
    assert len(rows) == 4


def test_wins_stand_beside_the_printed_ones(study: StudyRecords) -> None:
    rows = cells(piece(wins(study, "a")))
    assert rows[0] == ["Against", "Wins", "Ties", "Losses", "At equal labels", "Published"]
    assert rows[1] == ["random + FedAvg", "10", "0", "0", "9/0/0", "10/0/0"]
    assert rows[3] == ["random + server-solve", "10", "0", "0", "9/0/0", "–"]
    assert rows[5] == ["All", "40", "0", "0", "37/0/0", "30/0/0"]
    assert "10 checkpoints (cycles 1, 2, 4, 5, 6, 7, 8, 10, 11 and 12) x 4 seeds" in piece(
        wins(study, "a")
    )
    assert "not independent" in piece(wins(study, "a"))


def test_a_study_without_a_published_table_has_no_such_column(tmp_path: Path) -> None:
    study = read_study(write_regression(tmp_path / "a"))
    assert printed_tallies(study, FALE) == []
    assert "Published" not in piece(wins(study, "a"))


@pytest.mark.long
def test_wins_of_several_studies_are_summed_as_in_table_2(
    root: Path, tmp_path: Path
) -> None:
    stock = {**PROTEIN, "setting": "dataset=stock"}
    other = write_regression(tmp_path / "b", STRATEGIES[1:], name="other", published=stock)
    page = write_report([root, other], tmp_path / "both.html").read_text()
    parse_page(page)
    rows = cells(page[page.rindex("Wins, ties and losses over studies") :])
    assert rows[0] == [
        "Study",
        "random + FedAvg",
        "lcmd + FedAvg",
        "random + server-solve",
        "FALE-local",
        "All",
    ]
    assert rows[1] == ["made", "10/0/0", "10/0/0", "10/0/0", "10/0/0", "40/0/0"]
    assert rows[2] == ["other", "–", "10/0/0", "10/0/0", "10/0/0", "30/0/0"]
    assert rows[3] == ["All", "10/0/0", "20/0/0", "20/0/0", "20/0/0", "70/0/0"]
    assert rows[4] == ["Published", "10/0/0", "15/5/0", "–", "16/2/2", "41/7/2"]


def test_fale_is_shown_against_its_control_with_the_same_solver(
    study: StudyRecords,
) -> None:
    rows = cells(piece(controls(study, "a")))
    assert [row[:2] for row in rows[1:]] == [
        ["FALE", "random + server-solve"],
        ["FALE-local", "random + FedAvg"],
    ]
    assert rows[1][2].startswith("−0.0210 [−0.0")


def test_a_run_costs_time_bytes_and_exchanges(study: StudyRecords) -> None:
    rows = {row[0]: row[1:] for row in cells(piece(run_details(study, "a")))}
    assert rows["Strategy"] == ["Runs", "Time", "Exchanges", "Upload", "Download"]
    assert rows["FALE"] == ["4", "1.0 s", "3", "980 B", "980 B"]
    assert rows["random + FedAvg"] == ["4", "13.0 s", "39", "12.7 kB", "12.7 kB"]


@pytest.mark.long
def test_diverged_runs_are_named_marked_and_told_the_way_out(tmp_path: Path) -> None:
    root = write_regression(tmp_path / "a")
    bad = {("lcmd", 1), ("lcmd", 3), ("random@training=server-solve", 0)}

    def diverge(row: dict[str, Any], folder: Path) -> dict[str, Any]:
        if (row["strategy"], row["seed"]) in bad:
            return {"mse": 1e9}
        return {}

    rewrite(root, diverge)
    study = read_study(root)
    steps, solved = warnings(study)
    assert "lcmd + FedAvg (seeds 1 and 3, first in cycle 0)" in steps
    assert "lower the learning rate" in steps
    assert "server-solve" not in steps
    assert "random + server-solve (seed 0, first in cycle 0)" in solved
    assert "server-solve:ridge=0.001" in solved
    shown = tables.displayed(final_table(study)).frame()
    assert shown["Strategy"].tolist()[-2:] == [
        "random + server-solve (diverged)",
        "lcmd + FedAvg (diverged)",
    ]
    assert shown["Final mean squared error"].iloc[-1] == "5.00e+08 ± 5.77e+08"
    assert "5.00e+08 ± 5.77e+08 †" in piece(errors(study, "a"))
    assert "a seed has diverged" in piece(errors(study, "a"))
    parse_page(write_report([root]).read_text())


def test_nobody_is_called_diverged_without_need(study: StudyRecords) -> None:
    assert warnings(study) == []
    assert "diverged" not in " ".join(tables.footnotes(final_table(study)))


def test_a_recipe_that_solves_at_the_server_is_solved(tmp_path: Path) -> None:
    config = {"training": {"name": "server-solve", "fields": {}}}
    study = read_study(write_regression(tmp_path / "a", ("random", FALE), config=config))
    assert is_solved(study, "random")
    assert not is_solved(study, "random@training=fedavg")


def give_error(
    row: dict[str, Any], *, strategy: str, mse: float, cycle: int | None = None
) -> dict[str, float]:
    """Replace the error in the records of a query, of one cycle or of all."""
    if row["strategy"] == strategy and cycle in (None, row["cycle"]):
        return {"mse": mse}
    return {}


def axes_of(root: Path) -> Axes:
    figure = learning_curves(read_study(root))
    assert figure is not None
    (axes,) = figure.axes
    return axes


@pytest.mark.long
def test_errors_over_more_than_a_decade_have_a_logarithmic_axis(
    tmp_path: Path, root: Path
) -> None:
    assert axes_of(root).get_yscale() == "linear"
    other = write_regression(tmp_path / "a")
    rewrite(other, lambda row, _: give_error(row, strategy="random", cycle=0, mse=9.0))
    assert axes_of(other).get_yscale() == "log"
    parse_page(write_report([other]).read_text())


def test_a_diverged_curve_leaves_the_figure(tmp_path: Path) -> None:
    root = write_regression(tmp_path / "a")
    rewrite(root, lambda row, _: give_error(row, strategy="lcmd", mse=1e9))
    axes = axes_of(root)
    assert axes.get_ylim()[1] < 2
    low, high = axes.get_ylim()
    heights = [text.xy[1] for text in axes.texts if isinstance(text, Annotation)]
    assert len(heights) == len(axes.texts)
    assert all(low <= height <= high for height in heights)


def test_a_one_pass_strategy_alone_makes_a_page(tmp_path: Path) -> None:
    root = write_regression(tmp_path / "a", (FALE,), cycles=1, reference=None)
    page = write_report([root]).read_text()
    parse_page(page)
    assert "FALE" in page


@pytest.mark.long
def test_few_seeds_and_cycles_make_a_page_too(tmp_path: Path) -> None:
    roots = []
    for seeds, cycles in ((1, 3), (2, 1), (3, 0)):
        folder = tmp_path / f"{seeds}"
        roots.append(
            write_regression(folder, seeds=seeds, cycles=cycles, published=PROTEIN)
        )
    page = write_report(roots, tmp_path / "page.html").read_text()
    parse_page(page)
    for i in range(3):
        article = page.partition(f'<article id="study-{i}">')[2].partition("</article>")[0]
        assert "<table" in article


@pytest.mark.parametrize(
    ("training", "cure"),
    [
        ("closed-form", "closed-form:penalty=0.001"),
        ("closed-form-heads", "closed-form-heads:penalty=0.001"),
        ("masked-solve", "masked-solve:ridge=0.001"),
        ("mine:Solve", "mine:Solve:ridge=0.001"),
    ],
)
def test_the_way_out_names_the_field_of_the_training(training: str, cure: str) -> None:
    study = StudyManifest(
        name="a",
        config={"training": {"name": training}},
        reference=None,
        strategies=("random",),
        seeds=(0,),
        command="",
        published=None,
        versions={},
    )
    assert penalized_training(study, "random") == cure
    assert penalized_training(study, "random@training=server-solve:intercept=false") == (
        "server-solve:ridge=0.001"
    )
