"""The notebook of a study runs unchanged and shows the results of the report."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from matplotlib.figure import Figure

import fallow as fl
from fallow.configs.papers import load_papers
from fallow.report.notebook import _text, write_notebook
from tests.cli.conftest import Command
from tests.integrations.conftest import QUICK


@pytest.fixture(scope="module")
def study(simulation: fl.Federation, tmp_path_factory: pytest.TempPathFactory) -> fl.Study:
    out = tmp_path_factory.mktemp("studies") / "two <b>wards'+x"
    return fl.compare(simulation, ["random", "entropy"], seeds=2, out=out, **QUICK)


def shown_by(notebook: Path) -> list[Any]:
    """Run the code cells in turn as a kernel does; return the last expression of each."""
    names: dict[str, Any] = {}
    shown = []
    for cell in json.loads(notebook.read_text())["cells"]:
        if cell["cell_type"] != "code":
            continue
        lines = [line for line in cell["source"].splitlines() if not line.startswith("%")]
        body = ast.parse("\n".join(lines)).body
        last = None
        if isinstance(body[-1], ast.Expr):
            last = ast.Expression(body.pop().value)  # type: ignore[attr-defined]
        exec(compile(ast.Module(body, []), "cell", "exec"), names)
        if last is not None:
            shown.append(eval(compile(last, "cell", "eval"), names))  # noqa: S307
    return shown


def test_names_in_the_words_of_a_notebook_are_neither_tags_nor_links_nor_images() -> None:
    source = _text("# <b>![x](http://a.example/)\n\n[y]: http://a.example/")["source"]
    assert source == "# &lt;b>![x]\\(http://a.example/)\n\n[y]\\: http://a.example/"


def test_a_notebook_shows_the_tables_and_the_curves_of_its_study(
    study: fl.Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert study.folder is not None
    notebook = study.folder.parent / "a.ipynb"
    write_notebook([study.folder], notebook, papers=load_papers())
    assert str(study.folder.parent) not in notebook.read_text()
    monkeypatch.chdir(notebook.parent)  # working directory of a notebook
    again, table, curves, evaluations, costs, revealed = shown_by(notebook)
    assert repr(again) == repr(study)
    pd.testing.assert_frame_equal(table, study.table())
    assert isinstance(curves, Figure)
    assert len(evaluations) == len(study.records)
    assert "mse" not in evaluations
    assert costs["bytes_up"].tolist() == [
        study.records.query("strategy == @strategy and seed == @seed")["bytes_up"].max()
        for strategy, seed in costs.index
    ]
    assert set(revealed["function"]) == {
        entry["function"] for entry in study.records.iloc[-1]["revealed"]
    }


@pytest.mark.long
def test_a_notebook_is_valid_and_a_kernel_runs_it(study: fl.Study) -> None:
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    assert study.folder is not None
    file = write_notebook(
        [study.folder], study.folder.parent / "b.ipynb", papers=load_papers()
    )
    notebook = nbformat.read(file, as_version=4)
    nbformat.validate(notebook)
    path = {"metadata": {"path": str(file.parent)}}
    nbclient.NotebookClient(notebook, timeout=300, resources=path).execute()
    kinds = [
        set(output["data"])
        for cell in notebook.cells
        if cell["cell_type"] == "code"
        for output in cell["outputs"]
        if output["output_type"] in ("execute_result", "display_data")
    ]
    assert len(kinds) == 6
    assert "image/png" in kinds[2]
    assert all("text/html" in kinds[number] for number in (0, 1, 3, 4, 5))


@pytest.mark.long
def test_the_command_writes_a_notebook_beside_the_page(
    study: fl.Study, fallow: Command
) -> None:
    ended = fallow("report", str(study.folder), "--notebook", "a.ipynb", "--json")
    summary = json.loads(ended.out)
    assert Path(summary["notebook"]).is_file()
    assert Path(summary["report"]).is_file()
    refused = fallow("report", str(study.folder), "--notebook", "a.html")
    assert refused.says() == "a.html does not end in .ipynb; rename it"
