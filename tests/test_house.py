"""Code conventions: exports, global state, docstrings."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
SOURCE = REPOSITORY / "src" / "fallow"

UNSAFE = {
    **dict.fromkeys(
        ("cloudpickle", "dill", "joblib", "marshal", "pickle", "shelve"), "runs code"
    ),
    **dict.fromkeys(("torch.load", "torch.save"), "is pickle; checkpoints are safetensors"),
    **dict.fromkeys(
        (
            "numpy.random",
            "random",
            "torch.manual_seed",
            "torch.random.manual_seed",
            "torch.seed",
        ),
        "is global random state; use core.streams.stream",
    ),
    **dict.fromkeys(
        ("torch.cuda.manual_seed", "torch.cuda.manual_seed_all"), "is global state"
    ),
}
EXPLICIT = {
    "Generator",
    "PCG64",
    "Philox",
    "SeedSequence",
    "default_rng",
}  # numpy, no global state
# torch functions and tensor methods that draw from the global generator by default
DRAWS = {
    *("bernoulli", "multinomial", "normal", "poisson", "rand", "rand_like", "randint"),
    *("randint_like", "randn", "randn_like", "randperm"),
}
DRAWS_IN_PLACE = {
    *("bernoulli_", "cauchy_", "exponential_", "geometric_", "log_normal_", "normal_"),
    *("random_", "uniform_"),
}


def python_files(*folders: Path) -> list[Path]:
    return [path for folder in folders for path in sorted(folder.rglob("*.py"))]


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def list_nodes(tree: ast.Module) -> list[ast.AST]:
    """Return all nodes of a file, without the contexts, which are most of them."""
    nodes: list[ast.AST] = [tree]
    for node in nodes:
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, ast.expr_context):
                nodes.append(child)
    return nodes


IMPORTED_WHEN_USED = "import_when_used(__name__, MODULES"


def beyond_exports(tree: ast.Module) -> list[str]:
    """Return statements of an ``__init__.py`` besides docstring, imports and names.

    Names may be imported when they are used (`fallow.core.exports`).
    """

    def is_export(node: ast.stmt) -> bool:
        match node:
            case ast.Expr(value=ast.Constant(value=str())):
                at = tree.body.index(node)
                return at == 0 or ast.unparse(tree.body[at - 1]).startswith("MODULES = ")
            case ast.Assign(targets=[ast.Name(id="MODULES")], value=ast.Dict()):
                return True
            case ast.Assign(
                targets=[ast.Name(id="__all__")], value=ast.List([ast.Starred()])
            ):
                return ast.unparse(node.value) == "[*MODULES]"
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                return all(isinstance(one, ast.ImportFrom) for one in node.body)
            case ast.If(test=ast.UnaryOp(operand=ast.Name(id="TYPE_CHECKING"))):
                values = [one.value for one in node.body if isinstance(one, ast.Assign)]
                names = [*map(ast.unparse, values)]
                return len(names) == len(node.body) and all(
                    name.startswith(IMPORTED_WHEN_USED) for name in names
                )
            case ast.Import():
                return True
            case ast.ImportFrom():
                return all(alias.name != "*" for alias in node.names)
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.List() | ast.Constant()):
                return name.startswith("__")
        return False

    return [
        f"line {node.lineno}: {ast.unparse(node)}"
        for node in tree.body
        if not is_export(node)
    ]


def aliases(nodes: Iterable[ast.AST]) -> dict[str, str]:
    """Return the meaning of imported names: ``{"np": "numpy", "nn": "torch.nn"}``."""
    known: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                known[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom) and not node.level:
            known.update(
                {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
            )
    return known


def reason(name: str) -> str | None:
    """Return why a full name, or the longest known prefix, must not be used."""
    steps = name.split(".")
    if steps[:2] == ["numpy", "random"] and (len(steps) == 2 or steps[2] in EXPLICIT):
        return None  # the module alone draws nothing
    known = (".".join(steps[:n]) for n in range(len(steps), 0, -1))
    return next((f"{name} {UNSAFE[part]}" for part in known if part in UNSAFE), None)


def spell(node: ast.expr) -> str:
    """Return the source of an expression, with a fast path for dotted names."""
    steps = []
    inner = node
    while isinstance(inner, ast.Attribute):
        steps.append(inner.attr)
        inner = inner.value
    if isinstance(inner, ast.Name):
        return ".".join([inner.id, *reversed(steps)])
    return ast.unparse(node)


def full_name(node: ast.expr, known: dict[str, str]) -> str:
    """Return the dotted name of an expression, with its first part resolved."""
    first, dot, rest = spell(node).partition(".")
    return f"{known.get(first, '')}{dot}{rest}"


def draws_globally(call: ast.Call, known: dict[str, str]) -> bool:
    """Check whether a torch function draws without a generator."""
    name = full_name(call.func, known)
    is_method = isinstance(call.func, ast.Attribute) and call.func.attr in DRAWS_IN_PLACE
    is_draw = is_method or name in {f"torch.{draw}" for draw in DRAWS}
    return is_draw and not any(k.arg in {"generator", None} for k in call.keywords)


def unsafe_names(nodes: Sequence[ast.AST]) -> list[str]:
    """Return uses of global random state and of unsafe file formats."""
    known = aliases(nodes)
    used = [full_name(node, known) for node in nodes if isinstance(node, ast.Attribute)]
    outcome = {sentence for name in [*known.values(), *used] if (sentence := reason(name))}
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    draws = [call for call in calls if draws_globally(call, known)]
    outcome |= {f"line {c.lineno}: {ast.unparse(c.func)} without generator=" for c in draws}
    return sorted(outcome)


def prints(nodes: Sequence[ast.AST]) -> list[str]:
    """Return the lines that call ``print``, outside of docstrings."""
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    return [f"line {c.lineno}: print" for c in calls if spell(c.func) == "print"]


def check(paths: Iterable[Path], rule: Callable[[Path], Iterable[str]]) -> None:
    """Fail with one line for each finding of ``rule``, if there is any."""
    violations = [f"{p.relative_to(REPOSITORY)}: {what}" for p in paths for what in rule(p)]
    assert not violations, "\n".join(["", *violations])


def test_an_init_file_exports_and_does_nothing_else() -> None:
    inits = (path for path in python_files(SOURCE) if path.name == "__init__.py")
    check(inits, lambda path: beyond_exports(parse(path)))


def test_code_draws_from_streams_runs_no_file_has_docstrings_and_does_not_print() -> None:
    """Check all rules at once, since parsing the source takes longest."""
    check(python_files(SOURCE), broken_rules)


def broken_rules(path: Path) -> list[str]:
    """Return what a file prints, draws or reads against the rules, and a lacking docstring."""
    tree = parse(path)
    nodes = list_nodes(tree)
    broken = unsafe_uses(path, nodes)
    if path.relative_to(SOURCE).parts[0] != "cli":
        broken += prints(nodes)
    is_public = path.name[0] != "_" or path.name == "__init__.py"
    if is_public and not ast.get_docstring(tree):
        broken.append("has no docstring")
    return broken


def unsafe_uses(path: Path, nodes: Sequence[ast.AST]) -> list[str]:
    """Return `unsafe_names` without one exception.

    Weights of an installed package are read by torch.load with ``weights_only`` after their
    SHA-256 was checked.
    """
    names = unsafe_names(nodes)
    if path.relative_to(SOURCE).as_posix() == "encoders/efficientnet_lite.py":
        assert "weights_only=True" in path.read_text(encoding="utf-8")
        names.remove("torch.load is pickle; checkpoints are safetensors")
    return names


@pytest.mark.parametrize(
    "code",
    [
        '"""Words."""\nfrom fallow.core.types import State\n\n__all__ = ["State"]',
        '"""Words."""\nfrom __future__ import annotations\n__version__ = "1"',
    ],
)
def test_exports_are_accepted_in_an_init_file(code: str) -> None:
    assert beyond_exports(ast.parse(code)) == []


@pytest.mark.parametrize(
    "code",
    [
        "def f(): ...",
        "if True:\n    import torch",
        "register(Badge)",
        "DEFAULT = 3",
        "__all__ = sorted(dir())",
        "from fallow.core.types import *",
        "import torch\n'not a docstring'",
    ],
)
def test_anything_else_in_an_init_file_is_reported(code: str) -> None:
    assert len(beyond_exports(ast.parse(code))) == 1


@pytest.mark.parametrize(
    "code",
    [
        "import torch\ntorch.manual_seed(0)",
        "from torch import manual_seed",
        "import numpy as np\nnp.random.seed(0)",
        "from numpy import random as r\nr.choice(3)",
        "from numpy.random import choice",
        "import random",
        "import pickle as p",
        "from pickle import loads",
        "import torch as t\nt.load('x')",
        "import torch\ntorch.rand(3)",
        "from torch import randperm\nrandperm(3)",
        "def f(w): w.normal_()",
    ],
)
def test_an_unsafe_name_is_reported_under_any_alias(code: str) -> None:
    assert unsafe_names(list_nodes(ast.parse(code)))


@pytest.mark.parametrize(
    "code",
    [
        "import torch\ntorch.Generator().manual_seed(0)",
        "import torch\ntorch.rand(3, generator=g).uniform_(generator=g)",
        "import numpy as np\nnp.random.default_rng(0)\nx: np.random.Generator",
        "from fallow.strategies import random",
        "import torch\nclass A:\n    def load(self): return self.load()",
    ],
)
def test_explicit_generators_and_innocent_names_are_accepted(code: str) -> None:
    assert unsafe_names(list_nodes(ast.parse(code))) == []


def test_a_call_of_print_is_found_and_one_in_a_docstring_is_not() -> None:
    tree = ast.parse('"""\n>>> print(1)\n1\n"""\nprint(2)')
    assert prints(list_nodes(tree)) == ["line 5: print"]
