"""The report of a study with one model per site, and a run with such records."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fallow.study.reading import RunRecords
from fallow_papers.dpfl.graphs import graphs_of
from tests.experiment.test_personal_environment import run_config
from tests.report.conftest import NAMES, rewrite, write_study
from tests.report.reading import write_report
from tests.report.test_page import parse_page

STRATEGIES = ("random@training=local", "random", "random@training=dpfl:budget=2")


def by_site(row: dict[str, Any], cell: Path) -> dict[str, Any]:
    """Return scores of two of three sites; the third has flipped labels."""
    scores = {NAMES[0]: row["accuracy"], NAMES[1]: row["accuracy"] - 0.1}
    more = {
        "per_site": scores,
        "variance": 25.0,
        "worst_tenth": row["accuracy"] - 0.1,
        "accuracy_weighted": row["accuracy"],
        "model_bytes": 100,
    }
    if "dpfl" in cell.parent.name:
        more |= {
            "graph": {NAMES[0]: [NAMES[1 + row["round"] % 2]]},
            "evaluations": 8,
            "conflicts": 0,
            "omega": {NAMES[0]: NAMES[1:]},
        }
    return more


def write_flipped(folder: Path) -> Path:
    """Write a study of training algorithms in which one site has flipped labels."""
    root = write_study(
        folder,
        strategies=STRATEGIES,
        seeds=3,
        cycles=1,
        reference=STRATEGIES[2],
        config={"data": "digits", "cycles": 0, "flip": 1},
    )
    rewrite(root, by_site)
    return root


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the report of such a study."""
    root = write_flipped(tmp_path_factory.mktemp("personal") / "made")
    return write_report([root]).read_text()


def test_a_study_of_training_algorithms_has_sections_of_its_own(text: str) -> None:
    parse_page(text)
    assert re.findall(r"<h3>(.*?)</h3>", text) == [
        "Final scores",
        "Accuracy over rounds",
        "Sites",
        "Site by site",
        "Accuracy and variance of sites",
        "Collaboration graphs",
        "Accuracy by class",
        "Partition",
        "What left each site",
        "Reproduce this study",
    ]
    assert "The 1 sites with flipped labels" not in text
    assert "One site with flipped labels is excluded from all scores" in text


def test_a_site_that_told_no_score_is_named_and_not_accused(
    make_study: Callable[..., Path],
) -> None:
    root = make_study(strategies=STRATEGIES, config={"data": "digits", "cycles": 0})
    rewrite(root, by_site)
    text = write_report([root]).read_text()
    assert f"The last scores exclude {NAMES[2]}, which reported none." in text
    assert f"The last scores exclude {NAMES[2]}, which reported none." in text
    assert "flipped labels" not in text


@pytest.mark.long
def test_strategies_are_called_by_how_they_train(text: str) -> None:
    assert "Algorithms: 3, seeds: 3, reference: DPFL, 2 models" in text
    assert "Minus DPFL, 2 models [95 %]" in text
    assert ">FedAvg<" in text and ">Local<" in text


def test_no_column_of_a_study_of_training_algorithms_is_headed_query(text: str) -> None:
    assert ">Query<" not in text
    assert text.count(">Algorithm</th>") >= 7


def test_who_sends_wrong_labels_and_how_often_by_chance(text: str) -> None:
    assert "By chance, 50 % of links would come from sites with flipped labels." in text
    assert "Links from flipped sites, %" in text


def test_a_study_that_has_only_begun_makes_a_page(tmp_path: Path) -> None:
    root = write_flipped(tmp_path / "made")
    shutil.rmtree(root / "cells" / STRATEGIES[2])
    page = write_report([root]).read_text()
    parse_page(page)
    assert "Collaboration graphs" not in page
    assert "<h3>Sites</h3>" in page


def test_a_run_of_dpfl_records_its_graph_round_by_round() -> None:
    simulation, rows = run_config(
        training="dpfl:budget=3", score_rounds=4, rounds=4, flip=1
    )
    run = graphs_of(RunRecords("random", 0, tuple(rows), None, 0), True)
    assert run is not None
    assert run.sites == simulation.channel.sites
    assert list(run.by_round) == [0, 1, 2, 3]
    assert int(run.by_round[0].sum(1).max()) <= 2
    assert [
        name for name, is_wrong in zip(run.sites, run.wrong, strict=True) if is_wrong
    ] == list(simulation.flipped)
    assert run.omega is not None and not bool((run.by_round[3] & ~run.omega).any())
    assert (
        rows[-1]["model_bytes"]
        == 4 * simulation.layout.flatten(simulation.model)["w"].numel()
    )


def test_a_method_without_a_graph_records_none() -> None:
    _, rows = run_config(training="local", rounds=1, score_rounds=1)
    assert "graph" not in rows[-1]


@pytest.mark.long
def test_redundancy_has_a_section_where_picks_were_measured(
    make_study: Callable[..., Path],
) -> None:
    strategies = ("random@training=local", "random@training=dpfl:budget=2")
    root = make_study(strategies=strategies, seeds=3, cycles=2, reference=strategies[0])

    def tell_redundancy(row: dict[str, Any], cell: Path) -> dict[str, Any]:
        changed = by_site(row, cell)
        changed["pseudo_labels"] = None
        if row["cycle"] == 0:
            near = None
            if "dpfl" in cell.parent.name:
                near = 0.5
            known = {"accuracy": 0.5, "per_class": [], "redundancy": near}
            changed["pseudo_labels"] = known
        return changed

    rewrite(root, tell_redundancy)
    text = write_report([root]).read_text()
    parse_page(text)
    shown = text.partition("Redundancy of selected examples")[2].partition("</table>")[0]
    assert "0.500 ± 0.000" in shown
    assert shown.count("<tr") == 2  # its classifier and DPFL
