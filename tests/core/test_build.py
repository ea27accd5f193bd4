from types import ModuleType

import pytest

from fallow import strategies, training
from fallow.core.build import build, find, names
from fallow.core.names import OWN
from fallow.core.suggestions import nearest
from fallow.models import networks
from fallow.training import personal


@pytest.mark.parametrize(
    "name", ["AHFAL", "ahfal", "LeastConfidence", "least-confidence", "least_confidence"]
)
def test_spelling_does_not_matter(name: str) -> None:
    assert find(strategies, name).__name__ in ("AHFAL", "LeastConfidence")


def test_a_class_is_found_by_its_name_without_importing_another() -> None:
    def import_another(name: str) -> None:
        raise AssertionError(f"{name} was imported")

    package = ModuleType("toys")
    vars(package).update(
        __all__=["Margin", "Entropy"], Margin=strategies.Margin, __getattr__=import_another
    )
    assert find(package, "margin") is strategies.Margin
    with pytest.raises(AssertionError, match="Entropy was imported"):
        find(package, "entropy")


def test_fields_are_passed() -> None:
    assert build(strategies, "ahfal", tau=15.0).tau == 15.0


def test_an_unknown_class_names_the_nearest() -> None:
    with pytest.raises(
        ValueError, match="'entrpy' is not one of the strategies; did you mean"
    ):
        build(strategies, "entrpy")


def test_a_training_algorithm_as_a_strategy_is_explained() -> None:
    message = r"^'fed-avg-ft' is a training algorithm, not a query strategy; set training=fed-avg-ft"
    with pytest.raises(ValueError, match=message):
        find(strategies, "fed-avg-ft")
    with pytest.raises(ValueError, match=r"^'Margin' is a query strategy, not a training"):
        find((training, personal), "Margin")


def test_known_names_are_listed_as_one_types_them() -> None:
    known = r"known: .*closed-form, closed-form-heads, closed-form-labels, ditto"
    with pytest.raises(ValueError, match=known):
        find((training, personal), "xyz")


def test_an_unknown_field_names_the_nearest() -> None:
    with pytest.raises(ValueError, match="ahfal has no setting 'tua'; did you mean 'tau'"):
        build(strategies, "ahfal", tua=1)


def test_a_word_near_nothing_lists_what_is_known() -> None:
    assert nearest("zzz", ["b", "a"]) == "; known: a, b"


def test_a_users_own_class_comes_from_its_module() -> None:
    assert build(strategies, "fractions:Fraction", OWN, numerator=3) == 3


@pytest.mark.parametrize("name", ["no.such.module:Class", "fractions:Fractoin"])
def test_a_module_or_class_that_is_not_there_is_said(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        find(strategies, name, OWN)


def test_only_exported_classes_are_found() -> None:
    assert set(names(strategies)) == set(strategies.__all__)


def test_a_field_of_another_kind_is_said_with_what_it_takes() -> None:
    with pytest.raises(ValueError, match="mlp's hidden is 'a'; it must be a list of whole"):
        build(networks, "mlp", shape=(1, 8, 8), outputs=2, hidden="a")
    with pytest.raises(ValueError, match=r"mlp's hidden is \['a'\]; it must be a list of"):
        build(networks, "mlp", shape=(1, 8, 8), outputs=2, hidden=["a"])
    with pytest.raises(ValueError, match="linear's bias is 'no'; it must be true or false"):
        build(networks, "linear", shape=(1, 8, 8), outputs=2, bias="no")
