"""The tables of studies/pivotal.md have correct counts."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from tests.report.conftest import write_study

SCRIPTS = Path(__file__).resolve().parents[1] / "scripts"


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    return import_module("excess_tables")


def test_outcomes_are_counted_by_sign_and_level(tables: ModuleType) -> None:
    assert tables.count_outcomes([0.01, 0.04, 0.2, 0.05], [-1, 1, -1, -2]) == "2/1/1"
    assert tables.describe_bar("4/6/0").endswith("(40 %) and 0 lost: **reached**")
    assert tables.describe_bar("39/61/0").endswith("**missed**")
    assert tables.describe_bar("9/0/1").endswith("**missed**")


def test_a_table_without_all_its_runs_is_left_out(
    tmp_path: Path, tables: ModuleType
) -> None:
    assert tables.read_table(tables.TEN, tmp_path, "pol", 30) is None
    with pytest.raises(SystemExit, match="holds no table with all runs of 30 seeds"):
        tables.read_cells(tables.TEN, tmp_path, 30)


def test_bytes_are_read_of_complete_tables_and_of_these_seeds(
    tmp_path: Path, tables: ModuleType
) -> None:
    write_study(tmp_path / "many-pol", strategies=("random",), seeds=3, cycles=2)
    sent = tables.read_sent(tmp_path, ["pol"], ["random"], 2)
    assert sent == {("pol", "random"): 2.0}
