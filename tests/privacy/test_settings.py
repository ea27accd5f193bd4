"""Privacy settings of a run are checked before it starts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fallow.core import client
from fallow.core.contract import Contract
from fallow.experiment.methods import methods_of
from fallow.privacy.settings import Privacy, check_fit, check_targets
from fallow.settings.config import ExperimentConfig, with_settings
from fallow.settings.spec import Spec
from fallow.settings.variants import variant

UPLOAD = client.each("every model").of_class("upload")
OPEN = Contract("Open", secure_sum=False, local_dp=False, functions=(UPLOAD,))


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"epsilon": 0.0}, "privacy.epsilon is 0.0; it must be at least 1e-06"),
        ({"epsilon": float("nan")}, "privacy.epsilon is nan"),
        ({"epsilon": float("inf")}, "privacy.epsilon is inf"),
        (
            {"epsilon": 1.0, "total": 0.5},
            "privacy.epsilon is 1.0 for one release, which exceeds the total",
        ),
        ({"total": 5.0}, "privacy.epsilon is None, so nothing would be spent"),
        ({"bound": -1.0}, "privacy.bound is -1.0"),
        ({"mechanism": "discrete_laplace"}, "so no noise is added; set privacy.epsilon"),
        ({"mechanism": "gauss"}, "it must be 'laplace' or 'discrete_laplace'"),
    ],
)
def test_settings_that_mean_nothing_are_refused(
    fields: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        Privacy(**fields)


def test_the_total_is_that_of_all_queries_unless_it_is_given() -> None:
    assert Privacy(epsilon=1).over(5).total == 5
    assert Privacy(epsilon=1, total=2).over(5).total == 2
    assert Privacy(epsilon=1).over(0).total == 1
    assert Privacy().over(5) == Privacy()


def test_a_strategy_of_a_study_can_have_its_own_privacy() -> None:
    result = variant(
        ExperimentConfig("a"), "ahfal@privacy.epsilon=1@privacy.secure_sum=true"
    ).privacy
    assert result == Privacy(epsilon=1.0, secure_sum=True)
    with pytest.raises(ValueError, match=r"privacy\.epsilon is -1"):
        with_settings(ExperimentConfig("a"), {"privacy.epsilon": "-1"})
    with pytest.raises(ValueError, match="did you mean 'epsilon'"):
        with_settings(ExperimentConfig("a"), {"privacy.epsilom": "1"})


def test_privacy_that_is_off_changes_no_digest() -> None:
    assert (
        replace(ExperimentConfig("a"), privacy=Privacy()).digest
        == ExperimentConfig("a").digest
    )
    assert (
        replace(ExperimentConfig("a"), privacy=Privacy(epsilon=1)).digest
        != ExperimentConfig("a").digest
    )


def test_upper_bounds_have_no_privacy_to_pay_for() -> None:
    config = ExperimentConfig("a", privacy=Privacy(epsilon=1, secure_sum=True))
    for bound in ("bound:all-labels", "bound:pooled"):
        assert variant(config, bound).privacy == Privacy()
        methods_of(variant(config, bound))


def test_a_method_that_reads_single_answers_is_refused_with_the_reason() -> None:
    methods = {"open": OPEN}
    with pytest.raises(
        ValueError, match=r"open does not support secure aggregation .* every model"
    ):
        check_fit(Privacy(secure_sum=True), methods, 10)
    with pytest.raises(
        ValueError, match=r"open does not support local privacy .* noise would change"
    ):
        check_fit(Privacy(epsilon=1), methods, 10)
    check_fit(Privacy(), methods, 1)


def test_exact_sums_of_targets_are_refused_beside_noise() -> None:
    with pytest.raises(ValueError, match="target_scale is 'labeled', which sends exact"):
        check_targets(Privacy(epsilon=1.0), "labeled")
    check_targets(Privacy(epsilon=1.0), "none")


@pytest.mark.parametrize("sums", ["noisy", None])
def test_noise_that_no_reply_has_cannot_be_promised(sums: Any) -> None:
    noisy = Privacy(sums=sums, epsilon=1.0)
    config = ExperimentConfig("a", training=Spec("fedavg"), privacy=noisy)
    with pytest.raises(ValueError, match="random and fedavg send nothing to which noise"):
        methods_of(config)
    methods_of(replace(config, strategy=Spec("ahfal")))
    methods_of(replace(config, training=Spec.of("closed-form:delta=1e-5")))


@pytest.mark.parametrize("change", [{"sites": 2}, {"sites": 10, "participation": 0.2}])
def test_a_round_of_two_sites_is_refused_under_secure_sums(change: dict[str, Any]) -> None:
    config = ExperimentConfig("a", privacy=Privacy(secure_sum=True), **change)
    with pytest.raises(
        ValueError, match=r"at least 3 sites in every round.* this run has 2"
    ):
        methods_of(config)
    methods_of(replace(config, sites=15))


def test_a_missing_package_is_named_with_the_way_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "cryptography", None)
    with pytest.raises(ValueError, match=r"pip install 'fallow-core\[privacy\]'"):
        check_fit(Privacy(secure_sum=True), {}, 10)
