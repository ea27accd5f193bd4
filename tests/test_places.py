"""Files to edit for a component of each kind: counted, and printed in CONTRIBUTING.

Components from outside the package need none: those of `tests.toys` run without changes.
"""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

from fallow.configs.find import configs_of, load_configs
from fallow.configs.papers import paper_results_of
from fallow.report.page import write_report
from fallow.study.preparation import open_study
from fallow.study.reading import read_study
from fallow.study.study import list_runs, run_study
from fallow.study.study_run import Setup
from tests import toys

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "fallow"


@dataclass(frozen=True)
class Kind:
    """A kind of component, an example, and the package files whose code names it."""

    name: str
    example: str
    files: tuple[str, ...]
    others: tuple[str, ...] = ()  # other names of the example

    @property
    def line(self) -> str:
        """Return the row of the table in CONTRIBUTING."""
        where = ", ".join(f"`{file}`" for file in self.files)
        return f"| {self.name} | {len(self.files)} | {where} |"


def load_index() -> Any:
    """Return the script that writes the lists of classes."""
    spec = spec_from_file_location("index", ROOT / "scripts" / "index.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    sys.modules["index"] = module  # required by its dataclasses
    spec.loader.exec_module(module)
    return module


INDEX = load_index()
WRITTEN = frozenset(path.relative_to(SOURCE).as_posix() for path in INDEX.written_files())
"""Files with lists of classes that ``scripts/index.py`` writes."""

KINDS = (
    Kind(
        "query strategy",
        "LCMD",
        ("strategies/lcmd.py",),
    ),
    Kind(
        "training algorithm",
        "Robust",
        ("training/robust.py",),
    ),
    Kind(
        "personalized training algorithm",
        "KNNPer",
        ("training/personal/knnper.py",),
    ),
    Kind(
        "model",
        "MobileNetV2",
        (
            "models/mobilenet.py",
            "models/architectures.py",
        ),
    ),
    Kind(
        "partition",
        "TargetDirichlet",
        ("data/partition/target_dirichlet.py",),
    ),
    Kind(
        "public dataset",
        "wine",
        ("catalog/entries.py",),
    ),
    Kind(
        "executor",
        "Stacked",
        ("engine/stacked.py", "engine/executors.py"),
    ),
    Kind(
        "encoder",
        "HashedText",
        ("encoders/hashed_text.py",),
    ),
    Kind(
        "measurement",
        "Fairness",
        ("measurements/fairness.py",),
    ),
    Kind(
        "transport",
        "HttpsTransport",
        (
            "transport/https/transport.py",
            "transport/https/__init__.py",
            "transport/kinds.py",
        ),
        others=("HTTPS",),
    ),
    Kind(
        "setting of the annotation plan",
        "guided_share",
        (
            "deployment/answer_plan.py",
            "deployment/annotators.py",
            "deployment/labeling_page/views.py",
        ),
    ),
    Kind(
        "section of every report",
        "own_data",
        ("report/own_data.py", "report/page.py"),
    ),
)


@cache
def names_in(path: Path) -> frozenset[str]:
    """Return the names that a file defines, imports, uses or exports, also as texts."""
    result = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Name(id=name) | ast.alias(name=name) | ast.ClassDef(name=name):
                result.add(name)
            case ast.FunctionDef(name=name) | ast.Constant(value=str(name)):
                result.add(name)
            case ast.Attribute(attr=name):
                result.add(name)
    return frozenset(result)


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_one_of_a_kind_stands_in_the_places_that_are_named_and_in_no_other(
    kind: Kind,
) -> None:
    result = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if names_in(path) & {kind.example, *kind.others}
    }
    assert result - WRITTEN == set(kind.files)


def test_the_lists_of_classes_are_written_from_the_packages() -> None:
    assert INDEX.main(["--check"]) == 0


@pytest.mark.long
def test_a_new_strategy_is_listed_from_its_file_alone(tmp_path: Path) -> None:
    copy = tmp_path / "src"
    shutil.copytree(SOURCE, copy / "fallow", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "scripts").mkdir()
    shutil.copy2(ROOT / "scripts" / "index.py", tmp_path / "scripts")
    shutil.copy2(ROOT / "pyproject.toml", tmp_path)
    text = (SOURCE / "strategies" / "random.py").read_text(encoding="utf-8")
    changed = text.replace("class Random", "class Arbitrary").replace(
        "fl.Random", "fl.Arbitrary"
    )
    (copy / "fallow" / "strategies" / "arbitrary.py").write_text(changed, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(copy)}
    command = [sys.executable, str(tmp_path / "scripts" / "index.py")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    again = subprocess.run(
        [*command, "--check"], env=environment, capture_output=True, text=True
    )
    assert again.returncode == 0, f"the second run wrote other files: {again.stdout}"
    components = (copy / "fallow" / "settings" / "components.json").read_text()
    assert '"name": "arbitrary"' in components
    stub = (copy / "fallow" / "__init__.pyi").read_text(encoding="utf-8")
    assert "from fallow.strategies import Arbitrary as Arbitrary" in stub


def test_contributing_prints_how_many_places_each_kind_touches() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    lines = [kind.line for kind in KINDS]
    wanted = "the table in CONTRIBUTING.md should be:\n" + "\n".join(lines)
    assert [line for line in lines if line not in text] == [], wanted


@pytest.fixture(scope="module")
def toy_study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run a study of the toy configuration, whose components are all toys."""
    out = tmp_path_factory.mktemp("toys") / "study"
    config = configs_of([toys.PAPER])["toys/digits"]
    setup = Setup(config, out)
    cells = list_runs(config, config.strategies, range(2))
    open_study(setup, cells, "", resume=False)
    assert run_study(setup, cells) == []
    return out


def test_a_query_a_training_method_a_model_a_partition_and_an_executor_run_from_outside(
    toy_study: Path,
) -> None:
    study = read_study(toy_study)
    assert len(study.cells) == 4
    for strategy in toys.EXPERIMENT.strategies:
        assert len(study.final(strategy)) == 2
    for cell in study.cells:
        assert {record["executor"] for record in cell.records} == {"tests.toys:Backwards"}


@pytest.mark.long
def test_a_paper_from_outside_names_its_strategies_and_adds_its_section(
    toy_study: Path, tmp_path: Path
) -> None:
    page = write_report([toy_study], tmp_path / "page.html", papers=[toys.PAPER])
    text = page.read_text(encoding="utf-8")
    assert "4 runs of the toy." in text
    assert "The first" in text
    plain = write_report([toy_study], tmp_path / "plain.html").read_text(encoding="utf-8")
    assert "4 runs of the toy." not in plain
    assert "tests.toys:First" in plain


def test_two_papers_cannot_have_a_recipe_of_the_same_name() -> None:
    with pytest.raises(ValueError, match="two configurations are called 'toys/digits'"):
        configs_of([toys.PAPER, toys.PAPER])
    assert "toys/digits" not in load_configs()


def test_what_papers_say_is_merged_and_the_first_that_knows_a_strategy_names_it() -> None:
    known = paper_results_of([toys.PAPER])
    assert known.codes == {}
    assert known.published.names() == []
