from __future__ import annotations

import csv
import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from fallow.report import tables
from fallow.report.final_table import beside, final_table, signs
from fallow.report.tables import footnotes
from fallow.study.published import PublishedResult
from fallow.study.records import StudyRecords
from fallow.study.statistics import mean_sd
from tests.report.reading import read_study


@pytest.fixture
def study(study_dir: Path) -> StudyRecords:
    return read_study(study_dir)


def test_the_csv_holds_the_numbers_of_the_records(study: StudyRecords) -> None:
    rows = {
        r["strategy"]: r
        for r in csv.DictReader(io.StringIO(tables.to_csv(final_table(study))))
    }
    mean, sd = mean_sd([100 * s for s in study.final("entropy").values()])
    assert float(rows["entropy"]["mean"]) == pytest.approx(mean, abs=1e-4)
    assert float(rows["entropy"]["sd"]) == pytest.approx(sd, abs=1e-4)
    assert rows["ahfal"]["kind"] == "reference"
    assert rows["ahfal"]["Wilcoxon p"] == ""
    assert float(rows["random"]["Wilcoxon Holm p"]) == 2 * float(
        rows["random"]["Wilcoxon p"]
    )


def test_the_best_strategy_stands_first_and_one_without_a_score_last(
    make_study: Callable[..., Path],
) -> None:
    root = make_study(strategies=("random", "entropy", "ahfal"), reference="random")
    assert [r.strategy for r in final_table(read_study(root)).rows] == [
        "ahfal",
        "entropy",
        "random",
    ]
    shutil.rmtree(root / "cells/ahfal")
    assert final_table(read_study(root)).rows[-1].strategy == "ahfal"


def test_runs_that_stopped_early_are_left_out_and_said_with_their_labels(
    study_dir: Path,
) -> None:
    for seed in (1, 4):
        path = study_dir / f"cells/entropy/seed-{seed}/records.jsonl"
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        kept = [row for row in rows if row["cycle"] < 2]
        kept[-1]["stopped"] = "another 100 labels bring less than 0.3 points"
        path.write_text("".join(json.dumps(row) + "\n" for row in kept))
    study = read_study(study_dir)
    table = final_table(study)
    row = table.row("entropy")
    assert row is not None and row.score is not None
    assert row.score.seeds == 4
    scores = [100 * study.curve("entropy")[1][seed] for seed in (1, 4)]
    mean, sd = mean_sd(scores)
    (output,) = table.stopped
    assert "2 runs stopped early and not counted in the row (seed 1, 4)" in output
    assert f"mean labels at the end 80, score {mean:.2f} ± {sd:.2f}." in output
    assert output in footnotes(table)
    assert output in tables.to_markdown(table)


def test_areas_are_tested_in_the_same_pairs(study: StudyRecords) -> None:
    (row,) = [r for r in final_table(study).rows if r.strategy == "random"]
    pairs = zip(study.areas("random").values(), study.areas("ahfal").values(), strict=True)
    mean, _ = mean_sd([100 * (ours - theirs) for ours, theirs in pairs])
    assert row.area_comparison is not None
    assert row.area_comparison.difference == pytest.approx(mean, abs=1e-9)
    assert "Area Holm p" in tables.to_markdown(final_table(study))


def test_where_trainings_differ_a_bound_says_whose_it_is(
    make_study: Callable[..., Path],
) -> None:
    strategies = ("random", "random@training=closed-form", "bound:all-labels")
    root = make_study(strategies=strategies, reference=None, config={"data": "digits"})
    table = final_table(read_study(root))
    assert [row.label for row in table.rows if row.is_bound] == ["all labels, FedAvg"]


def test_upper_bounds_come_last_and_are_never_tested(study: StudyRecords) -> None:
    last = final_table(study).rows[-1]
    assert last.is_bound
    assert last.comparison is None
    assert last.label == "all labels"


def test_labels_are_saved_against_random_only(
    study: StudyRecords, make_study: Callable[..., Path]
) -> None:
    table = final_table(study)
    saved = {row.strategy: row.saved for row in table.rows}
    assert saved["random"] is None
    assert saved["ahfal"] is not None and 0 < saved["ahfal"] < 100
    alone = final_table(read_study(make_study(strategies=("entropy", "ahfal"))))
    assert {row.strategy: row.saved for row in alone.rows}["ahfal"] is None


def test_one_seed_gives_a_table_without_tests_and_the_reason(
    make_study: Callable[..., Path],
) -> None:
    table = final_table(read_study(make_study(seeds=1)))
    assert not any(row.comparison for row in table.rows)
    assert "at least 2 common seeds" in table.untested
    assert "±" not in tables.displayed(table).frame()["Final accuracy, %"][0]


@pytest.mark.parametrize(
    ("reference", "says"), [(None, "No reference"), ("badge", "'badge'")]
)
def test_a_study_without_a_usable_reference_says_so(
    make_study: Callable[..., Path], reference: str | None, says: str
) -> None:
    assert says in final_table(read_study(make_study(reference=reference))).untested


def test_published_numbers_stand_beside_and_their_signs_are_compared(
    make_study: Callable[..., Path],
) -> None:
    names = {"ahfal": "AHFAL", "random": "Random", "entropy": "Entropy"}
    root = make_study(published=None)
    study = read_study(root)
    table = final_table(study)
    rows = tuple(
        type(r)(**{**vars(r), "label": names.get(r.strategy, r.label)}) for r in table.rows
    )
    cells = [
        PublishedResult("table 3", "AHFAL", "a", 79.82, 0.39),
        PublishedResult("table 3", "Entropy", "a", 80.16, 0.47),
        PublishedResult("table 3", "Random", "a", 77.71, None),
        PublishedResult("table 3", "Random", "b", 1.0, 1.0),
    ]
    printed = beside(type(table)(**{**vars(table), "rows": rows}), cells, "a", "table 3, a")
    assert tables.displayed(printed).frame()["Published"].tolist() == [
        "79.82 ± 0.39",
        "80.16 ± 0.47",
        "77.71",
        "–",
    ]
    assert [(s.label, s.agrees) for s in signs(printed)] == [
        ("Entropy", False),
        ("Random", True),
    ]


def test_a_setting_that_holds_no_query_is_named(study: StudyRecords) -> None:
    table = beside(final_table(study), [], "x", "table 3, x")
    assert "has none of these" in tables.footnotes(table)[-1]


def test_markdown_has_one_line_per_query_and_escapes_bars(
    make_study: Callable[..., Path],
) -> None:
    text = tables.to_markdown(
        final_table(
            read_study(make_study(strategies=("a|b", "random"), reference="random"))
        )
    )
    assert "| a\\|b |" in text
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    assert len({line.count(" | ") for line in lines}) == 1


def test_latex_escapes_and_balances(make_study: Callable[..., Path]) -> None:
    text = tables.to_latex(
        final_table(
            read_study(
                make_study(
                    strategies=("a_b", "random"), reference="random", name="50 % & more"
                )
            )
        )
    )
    assert r"a\_b" in text
    assert r"50 \% \& more" in text
    assert text.count("{") - text.count(r"\{") == text.count("}") - text.count(r"\}")


def test_the_terminal_table_fits_eighty_columns(study: StudyRecords) -> None:
    out = io.StringIO()
    Console(file=out, width=80, color_system=None).print(tables.to_rich(final_table(study)))
    assert "Holm" in out.getvalue()
    assert max(map(len, out.getvalue().splitlines())) <= 80


@pytest.mark.parametrize(
    ("strategies", "cycles", "word"),
    [
        (("random", "entropy", "bound:all-labels"), 3, "Strategy"),
        (("random", "random@training=ditto", "bound:all-labels"), 3, "Algorithm"),
        (("entropy", "entropy@trainer=2x5"), 3, "Algorithm"),
        (("random",), 0, "Algorithm"),
        (("random", "entropy@training=ditto"), 3, "Strategy"),
        (("entropy", "entropy:model=global@rounds=3"), 3, "Strategy"),
        (("entropy", "entropy@local_source=scratch"), 3, "Strategy"),
    ],
)
def test_strategies_are_called_by_what_they_differ_in(
    make_study: Callable[..., Path], strategies: tuple[str, ...], cycles: int, word: str
) -> None:
    root = make_study(
        strategies=strategies, reference=None, config={"data": "digits", "cycles": cycles}
    )
    made = final_table(read_study(root))
    assert tables.displayed(made).header[0] == word
    assert f"\n\n| {word} | Final" in tables.to_markdown(made)
    assert (
        "Each strategy is a query strategy with its training algorithm."
        in tables.footnotes(made)
    ) == (
        word == "Strategy"
        and any("@tr" in text or "@rounds" in text for text in strategies)
    )


def test_the_notes_speak_of_what_the_rows_are(make_study: Callable[..., Path]) -> None:
    strategies = ("random@training=local", "random")
    root = make_study(
        strategies=strategies, reference="random", config={"data": "d", "cycles": 0}
    )
    notes = tables.footnotes(final_table(read_study(root)))
    assert any(n.startswith("Differences are algorithm minus reference") for n in notes)
