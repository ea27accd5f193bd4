"""Import time of commands, and memory of workers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

HEAVY = {"torch", "numpy", "scipy", "sklearn", "matplotlib", "pydantic", "flwr", "fastapi"}
CODE = """
import sys
from fallow.cli import main
known = set()
for words in {commands!r}:
    sys.argv = ["fallow", *words]
    try:
        main()
    except SystemExit as ended:
        assert ended.code in (0, 2), (words, ended.code)
    heavy = {heavy!r} & set(sys.modules)
    for name in sorted(heavy - known):
        print("loads:", name, "by", *words)
    known = heavy
print("commands:", len({commands!r}))
"""


def loaded(code: str, *words: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, check=True
    )
    return done.stdout.rpartition("loaded:")[2].split()


COMMANDS: list[list[str]] = [
    [],
    ["--version"],
    ["--help"],
    ["compare", "--help"],
    ["coordinate", "--help"],
    ["coordinate", "init", "--help"],
    ["site", "start", "--help"],
    ["label", "--help"],
    ["comparr"],
    ["compare", "demo", "--strategy", "random,entrpy"],
    ["compare", "dmo"],
    ["run", "dmo", "--strategy", "random"],
    ["run", "unknown/cifar"],
    ["run", "demo", "--strategy", "entrpy"],
    ["run", "demo", "--set", "strategy=entrpy"],
    ["compare", "demo", "--set", "strategies=random,entrpy"],
    ["compare", "demo", "--set", "rounds=x"],
    ["run", "demo", "--set", "nothing=1"],
    ["compare", "demo", "--set", "nothing=1"],
    ["run", "demo", "--set", "partition=dirichlt"],
    ["run", "demo", "--set", "partition=dirichlet:alpa=1"],
    ["run", "demo", "--set", "model=nothing"],
    ["run", "demo", "--set", "training=fedavgg"],
    ["run", "demo", "--set", "encoder=timm-nothing"],
    ["run", "demo", "--strategy", "fedavg"],
    ["compare", "demo", "--strategy", "random,ahfal:tua=3"],
    ["run", "missing.csv"],
    ["run", "damaged.toml"],
    ["run", "unknown.toml"],
    ["compare", "wrong.toml"],
    ["run", "demo", "--data", "missing.csv"],
    ["settings"],
    ["settings", "alpha"],
    ["settings", "nothing"],
    ["models"],
    ["partitions"],
    ["encoders"],
    ["algorithms"],
    ["algorithms", "--json"],
    ["datasets"],
    ["datasets", "mnist"],
    ["datasets", "--json"],
    ["run", "demo", "--set", "rows=true"],
    ["run", "demo", "--set", "participation=all"],
    ["run", "demo", "--set", "lr=fast"],
    ["run", "demo", "--set", "resplit=yes"],
    [
        "coordinate",
        "init",
        "dmo",
        "--config",
        "dmo",
        "--sites",
        "a,b",
        "--example",
        "a.csv",
    ],
    ["benchmark", "--strategy", "entrpy"],
    ["run", "missing.toml"],
    ["compare", "missing.toml"],
    ["report", "missing"],
    ["export", "missing"],
    ["forecast", "missing"],
    ["advise", "missing"],
    ["predict", "missing", "rows.csv"],
    ["export-model", "missing", "--onnx", "model.onnx"],
    ["site", "start", "missing"],
    ["label", "missing"],
    ["coordinate", "start", "missing"],
]


def test_the_list_of_datasets_loads_nothing_heavy() -> None:
    code = CODE.format(commands=[["datasets"], ["datasets", "mnist"]], heavy=HEAVY)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert [line for line in done.stdout.splitlines() if line.startswith("loads:")] == []
    assert "commands: 2" in done.stdout


@pytest.mark.long
def test_help_version_and_wrong_arguments_load_nothing_heavy(tmp_path: Path) -> None:
    """Run all commands in one process and name the first that imports a heavy package.

    Settings on the command line are checked by their pydantic model.
    """
    (tmp_path / "damaged.toml").write_text("cycles = ")
    (tmp_path / "unknown.toml").write_text("nothing = 1")
    (tmp_path / "wrong.toml").write_text('cycles = "three"')
    done = subprocess.run(
        [sys.executable, "-c", CODE.format(commands=COMMANDS, heavy=HEAVY - {"pydantic"})],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert f"commands: {len(COMMANDS)}" in done.stdout
    assert [line for line in done.stdout.splitlines() if line.startswith("loads:")] == []


WORKER = """
import sys, fallow.engine.executors
first = sorted({heavy!r} & set(sys.modules))
import fallow.study.study
then = sorted({{'scipy.stats', 'sklearn', 'matplotlib'}} & set(sys.modules))
print("loaded:", *first, "then", *then)
"""


@pytest.fixture(scope="module")
def loaded_by_worker() -> list[str]:
    """Return what the executors load, and behind "then" what else a worker of a study does."""
    return loaded(WORKER.format(heavy=HEAVY))


@pytest.mark.long
def test_a_worker_of_a_study_loads_no_statistics_and_no_figures(
    loaded_by_worker: list[str],
) -> None:
    """Check the imports of workers, which need neither statistics nor figures."""
    assert loaded_by_worker[-1] == "then"


def test_the_executors_load_what_they_compute_with(loaded_by_worker: list[str]) -> None:
    assert loaded_by_worker[: loaded_by_worker.index("then")] == ["numpy", "torch"]


SITE = """
import importlib, pkgutil, sys
from pathlib import Path
class Lacking:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("matplotlib", "pandas"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Lacking())
import fallow.cli.label, fallow.cli.monitor, fallow.cli.site
import fallow.deployment.coordinator, fallow.deployment.labeling_page
import fallow.deployment.ledger, fallow.deployment.monitoring, fallow.deployment.site
import fallow.transport.https
for package in (
    fallow.deployment.coordinator,
    fallow.deployment.labeling_page,
    fallow.deployment.ledger,
    fallow.deployment.site,
    fallow.transport.https,
):
    for module in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        importlib.import_module(module.name)
from fallow.data.facts import describe_data, summarize_data
from fallow.data import open_dataset
from fallow.deployment.schema import schema_of
from fallow.deployment.site.rows import read_rows
from fallow.report.blocks import Table
import fallow.configs.papers, fallow.report.live, fallow.report.forecast
from fallow.experiment.predict import _write_parquet
lines = [["a", "yes", "0.5"], ["b", "", ""]]
file = _write_parquet(["id", "prediction", "probability"], lines, True)
assert file.startswith(b"PAR1")
for table in map(Path, sys.argv[1:]):
    rows = read_rows(table, schema_of(table, "sick"))
    summarize_data(describe_data(open_dataset(table, label="sick"), comes_labeled=True))
assert Table("sites", ["site"], [["=a"]]).csv == "site\\n'=a\\n"
print("loaded:", len(rows.ids))
"""


@pytest.mark.long
def test_a_site_needs_neither_pandas_nor_matplotlib(tmp_path: Path) -> None:
    """Import all modules of a site, and read and describe its tables without them."""
    pytest.importorskip("openpyxl")
    pytest.importorskip("pyarrow")
    frame = pd.DataFrame({"age": [1.5, 2.5, 3.0] * 4, "kind": ["a", "b", None] * 4})
    frame["sick"] = ["no", "yes"] * 6
    frame.to_csv(tmp_path / "rows.csv", index=False)
    frame.to_parquet(tmp_path / "rows.parquet")
    frame.to_excel(tmp_path / "rows.xlsx", index=False)
    assert loaded(SITE, *map(str, sorted(tmp_path.iterdir()))) == ["12"]


FULL = {
    "a study": [["demo", "--fast"], ["run", "demo"], ["compare", "demo"]],
    "fallow report": [["report", "X"]],
    "fallow export": [["export", "X"]],
    "fallow forecast": [["forecast", "X"]],
    "fallow advise": [["advise", "X"]],
    "fallow benchmark": [["benchmark"]],
    "the report of a coordinator": [
        ["coordinate", "start", "X"],
        ["coordinate", "describe", "X"],
    ],
}
"""Purpose in the message -> commands that need matplotlib and pandas."""
CORE = """
import io, sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
import fallow as fl
from fallow.cli import main
for package in ("matplotlib", "pandas"):
    sys.modules[package] = None
    for name in dir(fl):
        getattr(fl, name)
    for call in (fl.run, fl.compare, fl.describe_sites):
        try:
            call("digits")
        except ValueError as error:
            print(error)
    for words in {commands!r}:
        sys.argv = ["fallow", *words]
        try:
            with redirect_stderr(io.StringIO()) as output, redirect_stdout(io.StringIO()):
                main()
        except SystemExit as ended:
            print(ended.code, *output.getvalue().split())
    del sys.modules[package]
print(sorted(path.name for path in Path.cwd().iterdir()))
"""


@pytest.mark.long
def test_a_command_that_needs_more_than_the_core_says_what_to_install(
    tmp_path: Path,
) -> None:
    (tmp_path / "X").mkdir()
    for file in ("study.json", "coordinator.json"):
        (tmp_path / "X" / file).touch()
    commands = [words for listed in FULL.values() for words in listed]
    done = subprocess.run(
        [sys.executable, "-c", CORE.format(commands=[*commands, ["algorithms"]])],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    expected = []
    for package in ("matplotlib", "pandas"):
        why = (
            f"needs the package {package}, which fallow-core does not install; install it "
            "with: pip install fallow"
        )
        expected += [f"fl.{name} {why}" for name in ("run", "compare", "describe_sites")]
        for purpose, listed in FULL.items():
            expected += [f"2 error: {purpose} {why}"] * len(listed)
        expected.append("0")
    assert done.stdout.splitlines() == [*expected, "['X']"]
