"""The published tables are complete, consistent, and equal to those of the papers."""

from __future__ import annotations

import re

import pytest

from fallow.configs.papers import load_paper_results
from fallow.study.published import PublishedCounts

TABLES = load_paper_results().published
published = TABLES.cells
source = TABLES.source
tables = TABLES.names
sizes = TABLES.sizes
tallies = TABLES.tallies


def cells(table: str) -> dict[tuple[str, str], tuple[float | None, float | None]]:
    return {(cell.method, cell.setting): (cell.mean, cell.sd) for cell in published(table)}


def totals(rows: list[PublishedCounts]) -> tuple[int, int, int]:
    return sum(t.win for t in rows), sum(t.tie for t in rows), sum(t.loss for t in rows)


@pytest.mark.parametrize(
    ("table", "method", "setting", "mean", "sd"),
    [
        ("ahfal-table1", "AHFAL", "alpha=0.1", 66.15, 0.94),
        ("ahfal-table1", "AHFAL", "alpha=1.0", 79.82, 0.39),
        ("ahfal-table1", "Random", "alpha=0.1", 56.25, 3.73),
        ("ahfal-table1", "Entropy", "alpha=1.0", 80.16, 0.47),
        ("ahfal-table2", "AHFAL", "dataset=MNIST", 92.83, None),
        ("ahfal-table3", "LoGo", "dataset=CIFAR-100", 43.93, 0.91),
        ("ahfal-table3", "Entropy", "dataset=MNIST", 98.63, 0.0),
        ("ahfal-table4", "AHFAL", "model=MobileNetV2", 77.68, 1.35),
        ("ahfal-table5", "AHFAL, epsilon 1 a cycle", "alpha=0.1", 65.70, None),
        ("ahfal-table5", "AHFAL", "alpha=0.1", 66.15, None),
        ("ahfal-table6", "AHFAL without toggling", "alpha=0.1", 65.89, None),
        ("ahfal-table7", "AHFAL + KCFU", "alpha=0.1", 73.98, 0.92),
        ("ahfal-table8", "LoGo", "dataset=MNIST alpha=0.5", 99.21, None),
        ("ahfal-table8", "FEAL", "dataset=SVHN alpha=0.5", 92.08, None),
        ("ahfal-table9", "AHFAL", "regime=low", 59.42, 1.92),
        ("fairfal-final", "FairFAL", "dataset=CIFAR-10", 60.44, None),
        ("fairfal-final", "BADGE", "dataset=OctMNIST", None, None),
        ("fairfal-curve", "LoGo", "labeled=15%", 51.56, None),
        ("fairfal-ablation", "with two stages kappa=2", "alpha=0.1", 60.61, None),
        ("fairfal-selector", "Entropy: global over local", "alpha=100 rho=20", 106, None),
        ("fairfal-cifar100", "FairFAL", "alpha=100", 30.02, None),
        ("dpfl-table1", "DPFL B_c=inf", "dataset=CIFAR10 partition=Dir(0.1)", 84.39, 0.43),
        ("dpfl-table1", "FedProx+FT", "dataset=FEMNIST", 93.58, 0.29),
        ("dpfl-table2", "DPFL", "tau_init=1 B_c=5", 82.30, 0.24),
        ("dpfl-table3", "DPFL", "period=20 B_c=inf", 82.34, None),
    ],
)
def test_a_cell_holds_what_the_paper_prints(
    table: str, method: str, setting: str, mean: float | None, sd: float | None
) -> None:
    assert cells(table)[method, setting] == (mean, sd)


@pytest.mark.parametrize(
    ("table", "methods", "settings"),
    [
        ("ahfal-table1", 9, 4),
        ("ahfal-table2", 9, 3),
        ("ahfal-table3", 9, 4),
        ("ahfal-table4", 9, 2),
        ("ahfal-table8", 9, 6),
        ("ahfal-table9", 9, 2),
        ("fairfal-final", 8, 5),
        ("fairfal-curve", 5, 4),
        ("fairfal-ablation", 8, 2),
        ("dpfl-table1", 15, 5),
        ("dpfl-table2", 1, 12),
        ("dpfl-table3", 1, 16),
    ],
)
def test_a_grid_has_every_cell_once(table: str, methods: int, settings: int) -> None:
    rows = published(table)
    assert len({cell.method for cell in rows}) == methods
    assert len({cell.setting for cell in rows}) == settings
    assert len(rows) == len(cells(table)) == methods * settings


@pytest.mark.parametrize("table", tables("cells"))
def test_a_table_names_its_method_and_setting_and_repeats_no_cell(table: str) -> None:
    rows = published(table)
    assert rows and len(cells(table)) == len(rows)
    assert all(cell.table == table and cell.method and cell.setting for cell in rows)
    assert all(cell.mean is not None or cell.sd is None for cell in rows)
    if source(table).unit == "accuracy in %":
        assert all(0 < cell.mean < 100 for cell in rows if cell.mean is not None)


def test_the_index_names_every_file_once_and_says_where_it_comes_from() -> None:
    files = [
        file
        for folder in load_paper_results().published.folders
        for file in folder.glob("*.csv")
    ]
    file_names = {file.name.removesuffix(".csv") for file in files} - {"index"}
    assert file_names == set(tables()) and len(file_names) == len(tables()) == 19
    for values in map(source, tables()):
        assert values.paper and values.title and values.protocol and values.unit
        assert values.origin in ("paper", "reading notes")


@pytest.mark.parametrize(
    ("table", "seeds"),
    [
        ("ahfal-table1", 3),
        ("fairfal-final", 5),
        ("fale-table2", 10),
        ("dpfl-table1", 3),
        ("dpfl-table3", 1),
        ("fale-table1", None),
    ],
)
def test_the_source_tells_the_number_of_seeds(table: str, seeds: int | None) -> None:
    assert source(table).seeds == seeds


def test_cells_that_the_ahfal_paper_prints_twice_have_one_mean() -> None:
    first = {
        method: mean
        for (method, setting), (mean, _) in cells("ahfal-table1").items()
        if setting == "alpha=0.1"
    }
    for table, setting in [
        ("ahfal-table2", "dataset=CIFAR-10"),
        ("ahfal-table4", "model=ResNet-8"),
    ]:
        assert {
            m: mean for (m, s), (mean, _) in cells(table).items() if s == setting
        } == first


def test_the_ahfal_tables_by_data_set_agree_with_the_table_by_heterogeneity() -> None:
    grid = cells("ahfal-table8")
    for table, alpha in [("ahfal-table2", "0.1"), ("ahfal-table3", "1.0")]:
        for (method, setting), (mean, _) in cells(table).items():
            if setting in ("dataset=MNIST", "dataset=SVHN"):
                assert grid[method, f"{setting} alpha={alpha}"][0] == mean


def test_the_last_point_of_the_fairfal_curve_is_its_final_accuracy() -> None:
    final = cells("fairfal-final")
    for (method, setting), value in cells("fairfal-curve").items():
        if setting == "labeled=45%":
            assert final[method, "dataset=CIFAR-10"] == value


def test_ten_epochs_before_the_graph_are_the_setting_of_the_first_dpfl_table() -> None:
    first = cells("dpfl-table1")
    second = cells("dpfl-table2")
    for share, budget in [("inf", "inf"), ("0.2N", "20"), ("0.1N", "10"), ("0.05N", "5")]:
        assert (
            first[f"DPFL B_c={share}", "dataset=CIFAR10 partition=Patho(3)"]
            == second["DPFL", f"tau_init=10 B_c={budget}"]
        )


def test_win_tie_loss_rows_sum_to_the_printed_totals() -> None:
    by_method = {
        m: [t for t in tallies("fale-table2") if t.method == m]
        for m in ("FALE", "FALE-local")
    }
    assert totals(by_method["FALE"]) == (675, 41, 4)
    assert totals(by_method["FALE-local"]) == (483, 132, 105)
    assert [len(rows) for rows in by_method.values()] == [72, 72]
    assert all(t.win + t.tie + t.loss == 10 for t in tallies("fale-table2"))


@pytest.mark.parametrize(
    ("method", "rival", "printed"),
    [
        ("FALE", "FALE-local", (77, 11, 2)),
        ("FALE", "CoreSet", (82, 8, 0)),
        ("FALE", "BADGE", (79, 9, 2)),
        ("FALE", "LCMD", (77, 13, 0)),
        ("FALE-local", "FALE", (2, 11, 77)),
        ("FALE-local", "Random", (89, 1, 0)),
        ("FALE-local", "BAIT", (88, 2, 0)),
        ("FALE-local", "CoreSet", (65, 25, 0)),
        ("FALE-local", "BADGE", (31, 40, 19)),
        ("FALE-local", "LCMD", (33, 48, 9)),
        ("FALE-local", "LoGo", (86, 4, 0)),
    ],
)
def test_win_tie_loss_against_one_rival_sums_to_its_printed_total(
    method: str, rival: str, printed: tuple[int, int, int]
) -> None:
    assert (
        totals(
            [t for t in tallies("fale-table2") if (t.method, t.rival) == (method, rival)]
        )
        == printed
    )


def test_fale_against_its_local_form_mirrors_the_other_block() -> None:
    there = {
        t.dataset: (t.win, t.tie, t.loss)
        for t in tallies("fale-table2")
        if (t.method, t.rival) == ("FALE", "FALE-local")
    }
    back = {
        t.dataset: (t.loss, t.tie, t.win)
        for t in tallies("fale-table2")
        if (t.method, t.rival) == ("FALE-local", "FALE")
    }
    assert there == back and len(there) == 9


def test_the_nine_tabular_sets_have_their_printed_sizes() -> None:
    published = {size.dataset: (size.rows, size.features) for size in sizes("fale-table1")}
    assert len(published) == 9
    assert published["protein"] == (45_730, 9) and published["mlr knn rng"] == (
        111_753,
        132,
    )


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        (
            "ahfal-tabel1",
            "'ahfal-tabel1' is not a published table; did you mean 'ahfal-table1'?",
        ),
        ("index", "'index' is not a published table"),
        ("../published", "is not a published table"),
        ("fale-table2", "'fale-table2' has tallies, not cells"),
    ],
)
def test_a_table_that_is_not_there_or_of_another_kind_is_refused(
    table: str, sentence: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        published(table)


def test_the_refusal_names_the_tables_that_can_be_read_so() -> None:
    with pytest.raises(ValueError, match="the tables with tallies are: fale-table2"):
        tallies("dpfl-table1")
    with pytest.raises(ValueError, match="no published table has 'tally'; did you mean"):
        tables("tally")
