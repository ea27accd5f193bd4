"""An error message explains how to install a missing integration."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fallow import encoders
from fallow.catalog import list_entries
from fallow.core import extensions
from fallow.core.build import find
from fallow.core.names import OWN
from fallow.data import load
from fallow.settings.config import ExperimentConfig, named_classes
from fallow.settings.spec import Spec

ENCODERS = extensions.OFFICIAL["fallow.encoders"]


@pytest.fixture(autouse=True)
def nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extensions, "_read_entries", lambda group, path: ())


@pytest.mark.parametrize("name", ENCODERS)
@pytest.mark.parametrize(
    "use",
    [
        lambda name: find(encoders, name, OWN),
        lambda name: Spec.parse(f"{name}:small"),
        lambda name: Spec.parse(f"{name.replace('-', '_')}:small:batch=8"),
    ],
)
def test_a_name_of_an_integration_says_what_to_install(
    name: str, use: Callable[[str], object]
) -> None:
    with pytest.raises(ValueError, match="is not installed; install its wheel") as error:
        use(name)
    assert str(error.value).endswith(f"pip install './integrations/{ENCODERS[name]}'")


def test_a_configuration_with_such_a_name_can_be_read() -> None:
    spec = Spec.parse("timm:network=resnet18")
    assert named_classes(ExperimentConfig("a", encoder=spec))["encoder"] == "timm"


@pytest.mark.parametrize("name", ["femnist", "ct"])
def test_a_dataset_of_the_papers_says_what_to_install(name: str) -> None:
    with pytest.raises(
        ValueError, match=f"the dataset '{name}' needs the package"
    ) as error:
        load(name)
    assert str(error.value).endswith("in a clone: pip install ./studies/fallow-papers")
    assert name not in [entry.name for entry in list_entries()]
