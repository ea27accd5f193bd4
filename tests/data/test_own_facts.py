"""Facts about user data, shown before a study starts and in its report."""

from __future__ import annotations

from pathlib import Path

from fallow.data import open_dataset
from fallow.data.facts import describe_data, format_facts
from fallow.experiment.rows import open_data
from fallow.settings.config import ExperimentConfig


def wards(path: Path) -> Path:
    """Return examples of three wards.

    Ward "c" has one example, "d" has one with a missing feature, and class "rare" has one.
    """
    rows = [f"{i * 0.7:.2f},{'ab'[i % 2]},{('no', 'yes')[i // 2 % 2]}" for i in range(40)]
    rows += ["3.3,c,yes", ",d,no", "5.5,a,rare", "6.5,b,", rows[0]]
    path.write_text("\n".join(["dose,ward,y", *rows]) + "\n", encoding="utf-8")
    return path


def test_rows_are_counted_by_site_and_reason_and_what_is_odd_is_said(
    tmp_path: Path,
) -> None:
    path = wards(tmp_path / "wards.csv")
    config = ExperimentConfig("w", data=str(path), label="y", site="ward", drop_rows=True)
    facts = describe_data(open_data(config, 0))
    assert facts is not None
    assert (facts["read"], facts["kept"]) == (45, 43)
    assert facts["lost"] == ["d"]
    assert [(g["reason"][:9], g["rows"]) for g in facts["left_out"]] == [
        ("a feature", {"d": 1}),
        ("no label,", {"b": 1}),
    ]
    assert facts["classes"] == {"no": 21, "rare": 1, "yes": 21}
    assert facts["duplicates"] == 1 and facts["crossing"] == 0
    warnings = " | ".join(facts["warnings"])
    assert "only one example at c: strategies have nothing to select there" in warnings
    assert "no example remains of d" in warnings
    assert (
        "only one label of rare: it can be used for training or testing, not both"
        in warnings
    )
    shown = "\n".join(format_facts(facts))
    assert "rows: 45 read, 43 kept" in shown and "warning: only one" in shown
    assert sum(site["kept"] for site in facts["sites"]) == 43


def test_data_that_names_no_sites_is_counted_as_one(tmp_path: Path) -> None:
    facts = describe_data(open_dataset(wards(tmp_path / "w.csv"), label="y"))
    assert facts is not None and [s["site"] for s in facts["sites"]] == [""]
    assert facts["sites"][0]["read"] == 45
    assert [c["name"] for c in facts["columns"] if c["missing"]] == ["dose"]
    assert describe_data(open_dataset("iris")) is None


def test_columns_of_text_are_listed(tmp_path: Path) -> None:
    path = tmp_path / "notes.csv"
    rows = [f"note {i} of a patient,{i},{('no', 'yes')[i % 2]}" for i in range(20)]
    path.write_text("\n".join(["note,age,y", *rows]) + "\n", encoding="utf-8")
    facts = describe_data(open_dataset(path, label="y", columns=["note", "age"]))
    assert facts is not None
    shown = format_facts(facts)
    assert "  numbers: age" in shown and "  texts: note" in shown
