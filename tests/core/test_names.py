"""Class names in files from others are checked before the import."""

from __future__ import annotations

import importlib.util
import marshal
import py_compile
from collections.abc import Iterator
from pathlib import Path

import pytest

from fallow import strategies, training
from fallow.core.build import build, find
from fallow.core.names import (
    BUILT_IN,
    OWN,
    NamePolicy,
    check_name,
    distribution_digest,
    distribution_of,
    pin_names,
)
from fallow.models import networks
from tests.packages import METHODS, forget, install

MODULE = "my_methods_of_tests"


@pytest.fixture
def mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Install ``my-methods``; return the file that its import would write."""
    mark = tmp_path / "imported"
    files = {
        f"{MODULE}/__init__.py": "",
        f"{MODULE}/new.py": METHODS.format(mark=str(mark)),
    }
    install(tmp_path / "site", "my-methods", files, monkeypatch)
    yield mark
    forget(MODULE, "more_of_tests")


def policy() -> NamePolicy:
    return NamePolicy(allowed={"my-methods": distribution_digest("my-methods")})


@pytest.mark.parametrize("name", ["subprocess:Popen", "runpy:run_path", "os:system"])
def test_a_function_of_python_is_no_method(name: str) -> None:
    with pytest.raises(ValueError, match="part of Python"):
        build(strategies, name)
    with pytest.raises(ValueError, match="part of Python"):
        check_name(name, BUILT_IN)


def test_a_class_that_nobody_allowed_is_named_with_its_digest_and_not_imported(
    mark: Path,
) -> None:
    digest = distribution_digest("my-methods")
    for ask in (check_name, lambda name, policy: find(strategies, name, policy)):
        with pytest.raises(ValueError, match=f'my-methods = "{digest}" under .allow.'):
            ask(f"{MODULE}.new:Fancy", BUILT_IN)
    assert not mark.exists()


def test_an_allowed_class_is_built_and_checking_its_name_imports_nothing(
    mark: Path,
) -> None:
    check_name(f"{MODULE}.new:Fancy", policy())
    assert not mark.exists()
    assert build(strategies, f"{MODULE}.new:Fancy", policy(), k=3).k == 3
    assert mark.exists()


def test_other_code_under_an_allowed_name_is_not_imported(
    mark: Path, tmp_path: Path
) -> None:
    before = policy()
    with (tmp_path / "site" / MODULE / "new.py").open("a") as file:
        file.write("# one more line\n")
    with pytest.raises(ValueError, match="its code has changed"):
        find(strategies, f"{MODULE}.new:Fancy", before)
    assert not mark.exists()


@pytest.mark.parametrize(
    ("attribute", "reason"),
    [
        ("function", "it is not a class"),
        ("Plain", "it is not a dataclass"),
        ("Path", "it is not a dataclass"),
        ("Net", "it is not a dataclass"),
        ("Borrowed", "is a class of fallow.strategies"),
        ("nowhere", "could not be loaded"),
    ],
)
def test_only_a_query_stands_for_a_query(attribute: str, reason: str, mark: Path) -> None:
    with pytest.raises(ValueError, match=reason):
        build(strategies, f"{MODULE}.new:{attribute}", policy())


def test_only_a_module_stands_for_a_model_and_only_training_trains(mark: Path) -> None:
    find(networks, f"{MODULE}.new:Net", policy())
    with pytest.raises(
        ValueError, match=r"not a subclass of torch.nn.modules.module.Module"
    ):
        find(networks, f"{MODULE}.new:Fancy", policy())
    with pytest.raises(ValueError, match="no function start"):
        find(training, f"{MODULE}.new:Fancy", policy())


def test_a_file_beside_those_that_were_looked_at_is_not_imported(
    mark: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that another distribution adds to an allowed folder is not imported."""
    install(
        tmp_path / "site",
        "other",
        {f"{MODULE}/evil.py": METHODS.format(mark=str(mark))},
        monkeypatch,
    )
    with pytest.raises(ValueError, match="is not part of Fallow"):
        find(strategies, f"{MODULE}.evil:Fancy", policy())
    assert not mark.exists()


def test_a_module_that_stands_before_an_allowed_one_is_not_imported(
    mark: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = tmp_path / "before"
    before.mkdir()
    (before / f"{MODULE}.py").write_text(METHODS.format(mark=str(mark)))
    allowed = policy()
    monkeypatch.syspath_prepend(str(before))
    with pytest.raises(ValueError, match="comes first in the import path"):
        find(strategies, f"{MODULE}.new:Fancy", allowed)
    assert not mark.exists()


@pytest.mark.parametrize("mode", py_compile.PycInvalidationMode, ids=lambda mode: mode.name)
def test_a_compiled_file_that_hides_other_code_changes_no_digest_and_never_runs(
    mode: py_compile.PycInvalidationMode,
    mark: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = tmp_path / "site" / MODULE / "new.py"
    text = source.read_text()
    compiled = Path(importlib.util.cache_from_source(str(source)))
    before = distribution_digest("my-methods")
    files = {f"{MODULE}/__init__.py": "", f"{MODULE}/new.py": text}
    listed = files | {f"{MODULE}/__pycache__/{compiled.name}": ""}
    install(tmp_path / "site", "my-methods", listed, monkeypatch)
    py_compile.compile(str(source), str(compiled), invalidation_mode=mode)
    head = compiled.read_bytes()[:16]  # fits time and size, or the hash, of the source
    evil = tmp_path / "evil"
    hidden = compile(f"open({str(evil)!r}, 'w').close()\n{text}", str(source), "exec")
    compiled.write_bytes(head + marshal.dumps(hidden))

    assert distribution_digest("my-methods") == before
    find(strategies, f"{MODULE}.new:Fancy", policy())
    assert mark.exists()
    assert not evil.exists()


def test_a_package_that_hides_a_reviewed_file_does_not_run(
    mark: Path, tmp_path: Path
) -> None:
    evil = tmp_path / "evil"
    hiding = tmp_path / "site" / MODULE / "new" / "__init__.py"  # comes before new.py
    hiding.parent.mkdir()
    hiding.write_text(f"open({str(evil)!r}, 'w').close()\n")
    with pytest.raises(ValueError, match="not among the files that were reviewed"):
        find(strategies, f"{MODULE}.new:Fancy", policy())
    assert not evil.exists()
    assert not mark.exists()


def test_an_editable_distribution_has_no_digest_of_its_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, "mine", {"__editable__.mine.pth": "/home\n"}, monkeypatch)
    assert distribution_of("mine_of_tests") is None
    with pytest.raises(ValueError, match="does not belong to an installed distribution"):
        pin_names(["mine_of_tests:Fancy"])


def test_ones_own_choice_is_pinned_to_the_code_that_is_there_now(mark: Path) -> None:
    names = ["entropy", f"{MODULE}.new:Fancy"]
    assert pin_names(names).allowed == policy().allowed
    assert not mark.exists()


def test_what_fallow_exports_for_comparisons_needs_no_permission() -> None:
    assert find(strategies, "fallow.strategies:Entropy").contract.title
    for name in ("fallow.strategies:__name__", "fallow.core:dataclass"):
        with pytest.raises(ValueError, match=r"is not a class of|could not be loaded"):
            find(strategies, name)
    with pytest.raises(ValueError, match=r"is not part of Fallow"):
        find(strategies, "fallow.cli.app:Any")


@pytest.mark.parametrize(
    "name", ["a.b", "x:y:z", "../evil:X", "a b:C", ":X", "a:", "a:b.c"]
)
def test_a_name_of_another_form_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"form module:Class|not one of the strategies"):
        find(strategies, name, OWN)


@pytest.mark.parametrize("digest", ["", "sha256:", "sha256:" + "g" * 64, 3])
def test_a_digest_that_is_none_allows_nothing(digest: object) -> None:
    with pytest.raises(ValueError, match="64 hexadecimal digits"):
        NamePolicy(allowed={"my-methods": digest})  # type: ignore[dict-item]
