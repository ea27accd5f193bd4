"""Data sheets: findings, columns, pictures and the page."""

from __future__ import annotations

import base64
import io
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from fallow.data import Dataset, from_arrays, from_folder
from fallow.data.contact_sheets import draw_contact_sheet, encode_png
from fallow.data.loaders.frame import from_frame
from fallow.data.sheet import ColumnSheet, SheetRecord, build_sheet, format_sheet
from fallow.report.sheet import render_sheet
from fallow.storage.validation import adapter_of

HOSTILE = "<script>alert(1)</script>"


def clinic(**columns: object) -> Dataset:
    """Return 120 patients at three sites."""
    draw = np.random.default_rng(0)
    table = {
        "age": draw.normal(60, 9, 120).round(1),
        "sex": ["male", "female", "male"] * 40,
        "ward": ["north"] * 60 + ["south"] * 40 + ["west"] * 20,
        "sick": draw.choice(["no", "yes"], 120),
    }
    frame = pd.DataFrame({**table, **columns})
    return from_frame(frame, label="sick", site="ward")


def pictures(mean: tuple[float, float] = (0.5, 0.5)) -> Dataset:
    """Return 40 images of random pixels at two sites, of two classes."""
    draw = np.random.default_rng(1)
    x = draw.random((40, 1, 16, 16)) * np.repeat(mean, 20)[:, None, None, None] * 2
    labels = ["cat", "dog"] * 20
    return from_arrays(x.astype(np.float32), labels, np.repeat(["a", "b"], 20))


def column_of(sheet: SheetRecord, name: str) -> ColumnSheet:
    return next(column for column in sheet.columns if column.name == name)


def sentences(sheet: SheetRecord, severity: str) -> str:
    chosen = [item.sentence for item in sheet.findings if item.severity == severity]
    return "\n".join(chosen)


def test_the_sentence_counts_examples_sites_and_classes() -> None:
    dataset = clinic()
    assert build_sheet(dataset).sentence == (
        f"120 examples at 3 natural sites: {len(dataset.x)} for training and "
        f"{len(dataset.x_test)} for testing, 2 classes ('no' and 'yes')."
    )


def test_histograms_count_each_known_value_at_its_site_once() -> None:
    dataset = clinic(dose=[1.5, None, 2.5, 7.0] * 30)
    sheet = build_sheet(dataset)
    assert dataset.sites is not None
    for name in ("age", "dose"):
        column = column_of(sheet, name)
        at = dataset.columns.index(name)
        for site, histogram in enumerate(column.histograms):
            own = dataset.x[dataset.sites == site, at]
            assert sum(histogram.counts) == int((~own.isnan()).sum())
    assert (column.low, column.median, column.high) == (1.5, 2.5, 7.0)
    assert column.missing == 30


def test_numbers_far_from_zero_keep_their_digits() -> None:
    start = 1_700_000_000.0
    seconds = start + np.random.default_rng(12).permutation(120) % 90
    column = column_of(build_sheet(clinic(seen=seconds)), "seen")
    assert column.low is not None and column.high is not None
    assert start <= column.low < column.high <= start + 90


def test_levels_are_counted_at_each_site_the_most_frequent_first() -> None:
    dataset = clinic()
    column = column_of(build_sheet(dataset), "sex")
    assert column.levels == ("male", "female")
    male = dataset.x[:, dataset.columns.index("sex=male")]
    assert sum(h.counts[0] for h in column.histograms) == int(male.sum())


def test_a_constant_at_one_site_is_a_warning_and_a_common_value_is_none() -> None:
    draw = np.random.default_rng(2)
    coded = draw.normal(200, 20, 120).round(1)
    coded[60:100] = 0
    usual = np.zeros(120)
    usual[:20] = 1
    output = sentences(build_sheet(clinic(chol=coded, smoker=usual)), "warning")
    assert "column 'chol' at south is 0 in all" in output
    assert "smoker" not in output


def test_a_column_that_is_empty_at_one_site_is_a_warning() -> None:
    dose = np.random.default_rng(3).normal(5, 1, 120)
    dose[60:100] = np.nan
    output = sentences(build_sheet(clinic(dose=dose)), "warning")
    assert "column 'dose' at south is empty" in output


def test_a_darker_scanner_is_a_warning_and_an_equal_one_is_none() -> None:
    output = sentences(build_sheet(pictures((0.5, 0.02))), "warning")
    assert "images at b are darker than at a" in output
    assert not sentences(build_sheet(pictures()), "warning")


def test_a_label_that_differs_from_all_similar_examples_is_named() -> None:
    draw = np.random.default_rng(4)
    x = np.concatenate([draw.normal(-5, 1, (40, 3)), draw.normal(5, 1, (40, 3))])
    labels = np.repeat(["low", "high"], 40)
    labels[7] = "high"
    ids = [f"p{at}" for at in range(80)]

    def describe() -> str:
        x_test = x[:2] + 0.1
        dataset = from_arrays(x, labels, ids=ids, x_test=x_test, y_test=["low", "low"])
        return sentences(build_sheet(dataset), "note")

    assert "1 label may be wrong" in describe()
    assert "p7 ('high' among 'low')" in describe()
    labels[7] = "low"
    assert "may be wrong" not in describe()


def test_a_nearly_equal_image_is_named() -> None:
    x = np.random.default_rng(5).random((60, 1, 16, 16)).astype(np.float32)
    x[31] = x[4] + 0.001
    x_test = np.random.default_rng(6).random((2, 1, 16, 16)).astype(np.float32)

    def describe() -> str:
        dataset = from_arrays(x, ["a", "b"] * 30, x_test=x_test, y_test=["a", "b"])
        return sentences(build_sheet(dataset), "note")

    assert "training row 4 and training row 31" in describe()
    x[31] = np.random.default_rng(11).random((1, 16, 16))
    assert "nearly equal" not in describe()


def test_a_contact_sheet_shows_the_pixels_of_the_model() -> None:
    dataset = pictures()
    sheet = build_sheet(dataset)
    assert {(p.label, p.site) for p in sheet.pictures} == {
        (label, site) for label in ("cat", "dog") for site in ("a", "b")
    }
    picture = Image.open(io.BytesIO(base64.b64decode(sheet.pictures[0].png)))
    assert picture.size == (96, 96)
    is_shown = (dataset.y == 0) & (dataset.sites == 0)
    first = (dataset.x[is_shown][0, 0].clamp(0, 1) * 255).round().to(torch.uint8)
    pixels = torch.from_numpy(np.array(picture))
    assert torch.equal(pixels[:48:3, :48:3, 0], first)


def test_the_place_of_no_picture_is_transparent() -> None:
    png = base64.b64decode(draw_contact_sheet(torch.ones(3, 1, 16, 16), (0.0, 1.0)))
    alpha = np.array(Image.open(io.BytesIO(png)))[..., 3]
    assert (alpha[:48] == 255).all() and (alpha[48:, :48] == 255).all()
    assert (alpha[48:, 48:] == 0).all()


def test_png_files_are_those_of_pillow() -> None:
    pixels = np.random.default_rng(7).integers(0, 256, (5, 9, 4), dtype=np.uint8)
    back = np.array(Image.open(io.BytesIO(encode_png(pixels))))
    assert np.array_equal(back.reshape(pixels.shape), pixels)


def test_the_smallest_and_largest_files_are_named(tmp_path: Path) -> None:
    draw = np.random.default_rng(8)
    for at in range(10):
        file = tmp_path / "scans" / ("cat", "dog")[at % 2] / f"{at}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        pixels = draw.integers(0, 256, (16, 16), dtype=np.uint8)
        pixels[at:] = 0
        Image.fromarray(pixels).save(file)
    dataset = from_folder(tmp_path / "scans")
    sheet = build_sheet(dataset, folder=tmp_path / "scans")
    assert dataset.ids is not None
    files = [file.name for file in sheet.files]
    assert files[0] == min(dataset.ids, key=lambda name: name[-5])
    assert files[-1] == max(dataset.ids, key=lambda name: name[-5])


class Tags(HTMLParser):
    """Elements of a page, and the addresses that it loads."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.sources: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        for name, value in attrs:
            if name in ("src", "href"):
                self.sources.append(value or "")


def test_hostile_names_and_cells_are_text_on_a_page_without_scripts() -> None:
    table = {
        HOSTILE: [1.0, 2.0, 3.0, 4.0] * 15,
        "kind": [HOSTILE, "b"] * 30,
        "ward": [HOSTILE, "b", "c"] * 20,
        "sick": [HOSTILE, "no", "no"] * 20,
    }
    dataset = from_frame(pd.DataFrame(table), label="sick", site="ward", name=HOSTILE)
    page = render_sheet(build_sheet(dataset))
    tags = Tags(page)
    assert "script" not in tags.names
    assert "&lt;script&gt;" in page
    assert all(source.startswith("data:text/csv") for source in tags.sources)


def test_pages_load_nothing_but_their_own_pictures() -> None:
    tags = Tags(render_sheet(build_sheet(pictures())))
    assert "img" in tags.names
    assert "script" not in tags.names
    assert all(source.startswith("data:") for source in tags.sources)


def test_the_text_for_the_terminal_has_the_sentence_and_warnings_first() -> None:
    coded = np.random.default_rng(2).normal(200, 20, 120)
    coded[60:100] = 0
    lines = [*format_sheet(build_sheet(clinic(chol=coded)))]
    assert "120 examples" in lines[0]
    assert lines[1].startswith("  warning: column 'chol'")
    assert any(line.endswith("change it with drop=['chol']") for line in lines[2:])


def test_large_data_are_sampled_and_the_sheet_states_it() -> None:
    draw = np.random.default_rng(9)
    x = draw.normal(size=(26_000, 2))
    dataset = from_arrays(x, draw.integers(0, 2, 26_000), columns=("a", "b"))
    sheet = build_sheet(dataset)
    assert "of 10,400 of 20,800 training examples" in sheet.remarks[0]
    assert sum(sheet.columns[0].histograms[0].counts) == 10_400


def test_targets_of_a_regression_are_a_column() -> None:
    draw = np.random.default_rng(10)
    dataset = from_arrays(draw.normal(size=(60, 2)), draw.normal(size=60))
    sheet = build_sheet(dataset)
    assert sheet.columns[0].role == "label"
    assert "a number to predict" in sheet.sentence
    assert "Labels of each class" not in render_sheet(sheet)


def test_small_numbers_of_labels_have_one_shade() -> None:
    shades = []
    for rare in (1, 4):
        labels = ["a"] * 60 + ["b"] * rare
        frame = pd.DataFrame({"x": np.linspace(0, 1, 60 + rare), "sick": labels})
        page = render_sheet(build_sheet(from_frame(frame, label="sick")))
        cells = re.findall(r"var\(--heat\) (\d+)%[^>]*>&lt;5<", page)
        assert cells
        shades.append(cells)
    assert shades[0] == shades[1]


def test_a_record_is_json_of_its_declared_type() -> None:
    sheet = build_sheet(clinic())
    adapter = adapter_of(SheetRecord)
    assert adapter.validate_json(adapter.dump_json(sheet)) == sheet


def test_columns_that_differ_between_sites_are_named_largest_first() -> None:
    draw = np.random.default_rng(0)
    n = 400
    site = np.array(["a", "b", "c", "c"] * (n // 4))
    frame = pd.DataFrame(
        {
            "site": site,
            "same": draw.normal(size=n),
            "shifted": draw.normal(size=n) + 1.5 * (site == "b"),
            "other": draw.normal(size=n) + 5.0 * (site == "c"),
            "kind": np.where((site == "a") & (draw.random(n) < 0.7), "x", "y"),
            "label": draw.integers(0, 2, n),
        }
    )
    sheet = build_sheet(from_frame(frame, label="label", site="site"))
    drift = {column.name: (column.drift, column.drift_at) for column in sheet.columns}
    assert drift["same"] == (None, "")
    assert [drift[name][1] for name in ("shifted", "kind")] == ["b", "a"]
    assert drift["other"][0] is not None and drift["other"][0] > 0.9
    (finding,) = [item for item in sheet.findings if "differ between" in item.sentence]
    order = [finding.sentence.index(repr(name)) for name in ("other", "kind", "shifted")]
    assert order == sorted(order) and "'same'" not in finding.sentence


def test_a_fix_that_is_no_setting_is_an_instruction() -> None:
    cells = ["none", "mild", "grave"] * 40
    with pytest.warns(UserWarning, match="counts as empty"):
        dataset = clinic(kind=cells)
    sheet = build_sheet(dataset)
    (line,) = [line for line in format_sheet(sheet) if "counts as empty" in line]
    assert line.endswith("counts as empty; write another word if it is a value")
    page = render_sheet(sheet)
    assert '<span class="fix">Write another word if it is a value</span>' in page
