"""Imports follow the layer table; they are read from the source with ``ast``."""

from __future__ import annotations

import ast
import runpy
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "src" / "fallow"

METHODS_AND_BELOW = {"core", "encoders", "models", "strategies", "training"}
BELOW_SITES = METHODS_AND_BELOW | {"storage", "catalog", "data", "privacy", "engine"}
BELOW_EXPERIMENT = BELOW_SITES | {"sites", "transport", "settings", "measurements"}
BELOW_DEPLOYMENT = BELOW_EXPERIMENT | {"experiment", "study", "configs", "report"}
MAY_IMPORT: dict[str, set[str]] = {
    "core": set(),
    "storage": {"core"},
    "catalog": {"core", "storage"},
    "data": {"core", "storage", "catalog"},
    "models": {"core"},
    "encoders": {"core"},
    "strategies": {"core", "models"},
    "training": {"core", "models"},
    "privacy": {"core"},
    "engine": {"core", "models"},
    "sites": BELOW_SITES,
    "transport": BELOW_SITES | {"sites"},
    "settings": BELOW_SITES,
    "measurements": BELOW_SITES,
    "experiment": BELOW_EXPERIMENT,
    "study": BELOW_EXPERIMENT | {"experiment"},
    "configs": BELOW_EXPERIMENT | {"experiment", "study"},
    "report": BELOW_EXPERIMENT | {"experiment", "study", "configs"},
    "deployment": BELOW_DEPLOYMENT,
    "api": BELOW_DEPLOYMENT | {"deployment"},
    "integrations": BELOW_DEPLOYMENT | {"api"},
    "cli": BELOW_DEPLOYMENT | {"api", "deployment", "integrations"},
}
METHODS = {"strategies", "training"}  # one algorithm per file
SHARED = {"base", "parts"}  # permitted imports of an algorithm from its own package

REQUIRED = {
    *(
        "jinja2",
        "matplotlib",
        "narwhals",
        "numpy",
        "pandas",
        "pyarrow",
        "pydantic",
        "rich",
        "safetensors",
    ),
    *("scipy", "sklearn", "threadpoolctl", "tomlkit", "torch", "typer"),
    "typing_extensions",
}
OPTIONAL = {  # the extras of pyproject.toml: imported inside the function that needs them
    *("PIL", "cryptography", "distributed", "fastapi", "httpx"),
    *("opendp", "prometheus_client", "python_calamine"),
    *("skactiveml", "starlette", "uvicorn"),
}
WHOLE = {  # folders that need an extra: imported as a whole, inside a function
    Path("transport/https"): {"httpx", "uvicorn"},
    Path("deployment/labeling_page"): {"fastapi", "jinja2", "uvicorn", "starlette"},
}


@dataclass(frozen=True)
class Arrow:
    """One imported name.

    ``source`` is a file below the root, ``target`` a full dotted name.
    """

    source: Path
    line: int
    target: str
    deferred: (
        bool  # inside a function or for the type checker only, so it need not be installed
    )

    @property
    def package(self) -> str:
        return self.source.parts[0]

    @property
    def steps(self) -> list[str]:
        return self.target.split(".")

    def __str__(self) -> str:
        return f"{self.source.as_posix()}:{self.line} imports {self.target}"


CALLS = ("import_module", "__import__")
"""Functions that import a module by its name."""


def absolute(source: Path, node: ast.ImportFrom) -> str:
    """Return the full name of the module in ``from ... import``, relative or not."""
    if not node.level:
        return node.module or ""
    here = ["fallow", *source.parent.parts]
    kept = here[: len(here) - node.level + 1]
    return ".".join([*kept, node.module] if node.module else kept)


def named(source: Path, node: ast.stmt | ast.expr) -> list[str]:
    """Return the full names that a node imports, with literal ``import_module`` calls."""
    match node:
        case ast.Import():
            return [alias.name for alias in node.names]
        case ast.ImportFrom():
            return [f"{absolute(source, node)}.{alias.name}" for alias in node.names]
        case ast.Call(func=called, args=[ast.Constant(value=str(name)), *_]):
            is_import = ast.unparse(called).rpartition(".")[2] in CALLS
            return [name] if is_import and not name.startswith(".") else []
    return []


def is_deferred(node: ast.AST) -> bool:
    """Check whether code inside ``node`` does not run when its module is imported."""
    if isinstance(node, ast.If):
        return ast.unparse(node.test).endswith("TYPE_CHECKING")
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)


def walk(tree: ast.Module, has_calls: bool) -> Iterator[tuple[ast.AST, bool]]:
    """Return the nodes of a module that may import, and whether their code is deferred.

    Expressions are among them only with ``has_calls``, since they are most of the nodes.
    """
    waiting: list[tuple[ast.AST, bool]] = [(tree, False)]
    while waiting:
        node, deferred = waiting.pop()
        deferred = deferred or is_deferred(node)
        yield node, deferred
        waiting += [
            (child, deferred)
            for child in ast.iter_child_nodes(node)
            if has_calls or not isinstance(child, ast.expr | ast.expr_context)
        ]


def arrows(root: Path) -> Iterator[Arrow]:
    """Return every import of every file below ``root``."""
    for path in sorted(root.rglob("*.py")):
        source, text = path.relative_to(root), path.read_text(encoding="utf-8")
        has_calls = any(name in text for name in CALLS)
        for node, deferred in walk(ast.parse(text), has_calls):
            if isinstance(node, ast.stmt | ast.expr):
                for target in named(source, node):
                    yield Arrow(source, node.lineno, target, deferred)


@pytest.fixture(scope="module")
def imports() -> list[Arrow]:
    """Return the imports of Fallow, whose files are parsed once."""
    return list(arrows(SOURCE))


def networks(root: Path) -> set[str]:
    """Return the classes of ``models`` that derive from torch's ``Module``."""
    trees = [
        ast.parse(path.read_text(encoding="utf-8")) for path in root.glob("models/**/*.py")
    ]
    classes = [n for tree in trees for n in ast.walk(tree) if isinstance(n, ast.ClassDef)]
    return {
        c.name for c in classes if any("Module" in ast.unparse(base) for base in c.bases)
    }


def outside(arrow: Arrow) -> str | None:
    """Return the violation of an import from another distribution, if any."""
    top = arrow.steps[0]
    if top in sys.stdlib_module_names:
        return None
    if arrow.package == "core" and top != "torch":
        return "core stands on torch and the standard library alone"
    if any(folder in arrow.source.parents and top in own for folder, own in WHOLE.items()):
        return None
    if top in OPTIONAL and not arrow.deferred:
        return "an optional dependency is imported inside the function that needs it"
    if top not in REQUIRED | OPTIONAL:
        return "it is not a dependency that pyproject.toml declares"
    return None


def inside(arrow: Arrow, concrete: set[str]) -> str | None:
    """Return the violation of an import within Fallow, if any."""
    target = arrow.steps[1] if len(arrow.steps) > 1 else ""
    page = Path("deployment/labeling_page")
    is_page = arrow.steps[1:3] == [*page.parts] and page not in arrow.source.parents
    if is_page and not arrow.deferred:
        return "the page needs an extra: it is imported inside the function that needs it"
    if target not in MAY_IMPORT:
        return "it is the root package or in no package of the layer table"
    if target != arrow.package:
        if target not in MAY_IMPORT[arrow.package]:
            allowed = ", ".join(sorted(MAY_IMPORT[arrow.package])) or "nothing of Fallow"
            return f"{arrow.package} may import {allowed}"
        if arrow.package in METHODS and concrete & set(arrow.steps):
            return "a method knows a model only through its protocol"
        return None
    is_method = arrow.package in METHODS and arrow.source.name != "__init__.py"
    room = [
        step for step in arrow.steps[2:] if step != "personal"
    ]  # a subpackage of training
    if is_method and not SHARED & set(room[:1]):
        return "a method imports its own base.py and parts/, never another method"
    return None


def violations(root: Path, imports: Iterable[Arrow]) -> list[str]:
    """Return one message for each import that the layer table forbids."""
    concrete = networks(root)
    breaches = [
        f"{folder.name}/ is in no row of the layer table"
        for folder in sorted(root.iterdir())
        if folder.is_dir() and any(folder.rglob("*.py")) and folder.name not in MAY_IMPORT
    ]
    for arrow in imports:
        if arrow.package in MAY_IMPORT:
            is_ours = arrow.steps[0] == "fallow"
            wrong = inside(arrow, concrete) if is_ours else outside(arrow)
            if wrong:
                breaches.append(f"{arrow}: {wrong}")
    return breaches


def test_imports_point_down(imports: list[Arrow]) -> None:
    breaches = violations(SOURCE, imports)
    assert not breaches, "\n".join(["", *breaches])


def plant(root: Path, file: str, code: str) -> list[str]:
    """Return the violations of a tree with one non-empty file ``file``."""
    network = root / "models" / "lenet.py"
    for path, text in ((network, "class LeNet(nn.Module): ..."), (root / file, code)):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return violations(root, arrows(root))


@pytest.mark.parametrize(
    ("file", "code", "reason"),
    [
        ("core/ask.py", "import numpy", "torch and the standard library alone"),
        (
            "core/ask.py",
            "from fallow.data import Pool",
            "core may import nothing of Fallow",
        ),
        ("core/ask.py", "import requests", "torch and the standard library alone"),
        (
            "data/pool.py",
            "from fallow.models import Linear",
            "data may import catalog, core, storage",
        ),
        (
            "data/pool.py",
            "from ..models.linear import Linear",
            "data may import catalog, core, storage",
        ),
        ("data/pool.py", "import requests", "not a dependency"),
        ("cli/run.py", "def f():\n    import fallow_trackers", "not a dependency"),
        ("data/table.py", "import python_calamine", "inside the function"),
        (
            "strategies/badge.py",
            "from fallow.engine import loop",
            "strategies may import core, models",
        ),
        (
            "strategies/badge.py",
            "from fallow import training",
            "strategies may import core, models",
        ),
        (
            "strategies/badge.py",
            "from fallow.strategies.entropy import Entropy",
            "another method",
        ),
        ("strategies/badge.py", "from fallow.strategies import Entropy", "another method"),
        ("strategies/badge.py", "from .entropy import Entropy", "another method"),
        ("strategies/badge.py", "from . import entropy", "another method"),
        ("strategies/parts/kcenter.py", "from ..badge import Badge", "another method"),
        (
            "strategies/badge.py",
            "from fallow.models.lenet import LeNet",
            "through its protocol",
        ),
        (
            "cli/label.py",
            "from fallow.deployment.labeling_page.app import app",
            "inside the function",
        ),
        (
            "training/personal/ditto.py",
            "from fallow.training.fedavg import FedAvg",
            "another method",
        ),
        ("engine/loop.py", "from fallow.privacy import ReleaseLedger", "engine may import"),
        ("privacy/ledger.py", "def f():\n    import fallow.engine", "privacy may import"),
        ("sites/in_process.py", "from fallow.study import study", "sites may import"),
        ("sites/in_process.py", "def f():\n    import flwr", "not a dependency"),
        ("transport/https/transport.py", "import prometheus_client", "inside the function"),
        ("study/study.py", "import_module('fallow.cli')", "study may import"),
        ("report/page.py", "from fallow.cli import main", "report may import"),
        ("study/names.py", "from fallow.report import page", "study may import"),
        ("cli/run.py", "from fallow import __version__", "the root package"),
        ("helpers/misc.py", "import torch", "helpers/ is in no row"),
    ],
)
def test_a_forbidden_import_is_named_with_its_reason(
    tmp_path: Path, file: str, code: str, reason: str
) -> None:
    (violation,) = plant(tmp_path, file, code)
    assert violation.startswith(file.partition("/")[0])
    assert reason in violation


@pytest.mark.parametrize(
    ("file", "code"),
    [
        ("core/ask.py", "import json, torch\nfrom .types import Tensor"),
        ("strategies/__init__.py", "from fallow.strategies.badge import Badge"),
        (
            "strategies/badge.py",
            "from fallow.strategies.base import Query\nfrom .parts import kcenter",
        ),
        ("strategies/feal.py", "from fallow.models.evidential import alpha"),
        (
            "strategies/parts/kcenter.py",
            "from fallow.strategies.parts.features import factors",
        ),
        ("data/table.py", "def read(path):\n    import python_calamine"),
        ("data/table.py", "if TYPE_CHECKING:\n    import python_calamine"),
        ("engine/loop.py", "from fallow.models.lenet import LeNet"),
        ("cli/run.py", "import typer\nfrom fallow.study import study"),
    ],
)
def test_an_import_that_points_down_is_accepted(
    tmp_path: Path, file: str, code: str
) -> None:
    assert plant(tmp_path, file, code) == []


def test_importing_fallow_is_fast_because_it_loads_nothing_heavy() -> None:
    heavy = "{'matplotlib', 'sklearn', 'typer', 'scipy', 'rich', 'pydantic'}"
    code = f"import sys, fallow; print(*sorted({heavy} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []


def module_of(source: Path) -> str:
    """Return the dotted name of a file of the source."""
    steps = source.with_suffix("").parts
    if steps[-1] == "__init__":
        steps = steps[:-1]
    return ".".join(("fallow", *steps))


def imported_modules(imports: list[Arrow]) -> dict[str, set[str]]:
    """Return the imports of each module, including deferred and type-only ones.

    A package's ``__init__`` counts as the module it is imported as, not as a stop on the
    way to another module.
    """
    modules = {module_of(path.relative_to(SOURCE)) for path in SOURCE.rglob("*.py")}
    imported: dict[str, set[str]] = {module: set() for module in modules}
    for arrow in imports:
        module = module_of(arrow.source)
        known = arrow.target
        if known not in modules:
            known = known.rpartition(".")[0]
        if known in modules and known != module:
            imported[module].add(known)
    return imported


def circles(arrows_of: dict[str, set[str]]) -> list[list[str]]:
    """Return the import cycles (strongly connected components of two or more modules)."""
    reached = {module: set(targets) for module, targets in arrows_of.items()}
    is_growing = True
    while is_growing:
        is_growing = False
        for targets in reached.values():
            further = set().union(*(reached[target] for target in targets))
            if not further <= targets:
                targets |= further
                is_growing = True
    groups = {
        tuple(sorted(m for m in targets if module in reached[m] and m in reached[module]))
        for module, targets in reached.items()
        if module in targets
    }
    return [list(group) for group in sorted(groups)]


def test_no_modules_import_one_another_in_a_circle(imports: list[Arrow]) -> None:
    cycles = circles(imported_modules(imports))
    assert not cycles, "\n".join(["", *(" <-> ".join(group) for group in cycles)])


def test_a_circle_is_found_through_a_third_module() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [["a", "b", "c"]]


def test_the_picture_of_the_house_has_the_arrows_of_today(imports: list[Arrow]) -> None:
    drawing = runpy.run_path(str(SOURCE.parents[1] / "scripts" / "draw_house.py"))
    today: dict[str, set[str]] = {package: set() for package in MAY_IMPORT}
    for arrow in imports:
        target = arrow.steps[1] if arrow.steps[0] == "fallow" else ""
        if arrow.package in today and target in today and target != arrow.package:
            today[arrow.package].add(target)
    described = drawing["described_in"](drawing["PICTURE"])
    assert described == drawing["describe"](today), "run make house"


SITE_CODE = ("deployment/site", "deployment/ledger", "deployment/labeling_page")
"""Folders of the code of a site, whose deferred imports count too."""
SITE_COMMANDS = {"fallow.cli.site", "fallow.cli.site_messages"}
NOT_AT_SITES = {"study", "report", "configs", "api"}


def reach_from_sites(imports: Iterable[Arrow]) -> dict[str, list[str]]:
    """Return each module that a site process imports, with the modules on the way to it."""
    known = {module_of(path.relative_to(SOURCE)) for path in SOURCE.rglob("*.py")}
    follows: dict[str, set[str]] = {}
    starts = {*SITE_COMMANDS}
    for arrow in imports:
        source = module_of(arrow.source)
        folders = {folder.as_posix() for folder in arrow.source.parents}
        is_start = not folders.isdisjoint(SITE_CODE)
        if is_start:
            starts.add(source)
        if not arrow.deferred or is_start:
            steps = arrow.target.split(".")
            chain = {".".join(steps[:n]) for n in range(2, len(steps) + 1)}
            follows.setdefault(source, set()).update(chain & known)
    reached = {start: [start] for start in sorted(starts)}
    waiting = list(reached)
    while waiting:
        module = waiting.pop(0)
        for target in sorted(follows.get(module, set()) - reached.keys()):
            reached[target] = [*reached[module], target]
            waiting.append(target)
    return reached


def test_a_site_imports_no_study_report_or_configuration(imports: list[Arrow]) -> None:
    reached = reach_from_sites(imports)
    assert "fallow.experiment.methods" in reached
    chains = [
        " -> ".join(chain)
        for module, chain in reached.items()
        if module.split(".")[1] in NOT_AT_SITES
    ]
    assert not chains, "\n".join(["", *chains])


def test_an_import_that_a_site_reaches_is_found_with_its_chain() -> None:
    site, below = Path("deployment/site/host.py"), Path("engine/loop.py")
    arrows_of_a_site = [
        Arrow(site, 1, "fallow.engine.loop.Loop", deferred=True),
        Arrow(below, 1, "fallow.study.study", deferred=False),
        Arrow(below, 2, "fallow.report.page", deferred=True),  # only if it is called
    ]
    reached = reach_from_sites(arrows_of_a_site)
    chain = ["fallow.deployment.site.host", "fallow.engine.loop"]
    assert reached["fallow.study.study"] == [*chain, "fallow.study.study"]
    assert "fallow.report.page" not in reached


def test_the_first_step_of_a_study_waits_for_no_figures_and_no_sparse_matrices(
    imports: list[Arrow],
) -> None:
    at_once = [arrow for arrow in imports if not arrow.deferred]
    imported = imported_modules(at_once)
    waiting = ["fallow.api.studies", "fallow.training.closed_form"]
    loaded: set[str] = set()
    while waiting:
        module = waiting.pop()
        if module not in loaded:
            loaded.add(module)
            waiting += imported[module]
    slow = [
        f"{module} imports {arrow.target}"
        for arrow in at_once
        if (module := module_of(arrow.source)) in loaded
        and arrow.target.startswith(("matplotlib", "scipy", "sklearn"))
    ]
    assert len(loaded) > 100
    assert slow == []
