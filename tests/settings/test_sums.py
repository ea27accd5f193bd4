"""Statements of a study about sums of labeled examples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fallow.measurements.meter import Exposure, describe_exposure
from fallow.privacy.settings import Privacy
from fallow.report.blocks import Note
from fallow.report.costs import disclosure, list_promises
from fallow.settings.config import ExperimentConfig
from fallow.settings.spec import Spec
from fallow.settings.sums import (
    COUNTS,
    IS_MASKED,
    IS_NOT_MASKED,
    NOT_COVERED,
    PROMISES,
    describe_choices,
    describe_sums,
    find_promise,
    with_sums,
)
from fallow.study.reading import read_study
from tests.each import each_of
from tests.report.conftest import rewrite, write_study

DOCS = Path(__file__).resolve().parents[2] / "docs"
EXACT = Privacy()
NOISE = Privacy(epsilon=4.0)


def configure(training: str, privacy: Privacy = EXACT, **more: Any) -> ExperimentConfig:
    return ExperimentConfig("a", training=Spec.of(training), privacy=privacy, **more)


@each_of(
    "training, privacy, head, promise",
    [
        ("closed-form", Privacy(), None, "exact"),
        ("closed-form-heads", Privacy(), None, "exact"),
        ("server-solve", Privacy(), None, "exact"),
        ("fedavg", Privacy(), "exact", "exact"),
        ("closed-form:delta=1e-5", NOISE, None, "noisy"),
        ("fedavg", Privacy(), None, "gradient"),
        ("fedavg", NOISE, None, "gradient"),
        ("somebody.else:Training", Privacy(), None, "gradient"),
    ],
)
def test_a_study_promises_what_its_training_and_its_sums_allow(
    training: str, privacy: Privacy, head: Any, promise: Any
) -> None:
    config = configure(training, privacy, **({"head": head} if head else {}))
    assert find_promise(config) == promise
    assert PROMISES[find_promise(config)] in describe_sums(config)


def test_noise_beside_gradient_steps_covers_counts_alone() -> None:
    sentence = describe_sums(configure("fedavg", NOISE))
    assert COUNTS in sentence
    assert PROMISES["noisy"] not in sentence


@pytest.mark.parametrize("is_masked", [True, False])
def test_the_sentence_says_whether_the_site_of_a_row_is_hidden(is_masked: bool) -> None:
    sentence = describe_sums(configure("closed-form", Privacy(secure_sum=is_masked)))
    assert (IS_MASKED in sentence) is is_masked
    assert (IS_NOT_MASKED in sentence) is not is_masked


def test_noise_is_stated_with_its_epsilon_its_delta_and_their_total() -> None:
    config = configure("closed-form:delta=1e-5", NOISE, cycles=0, rounds=1)
    assert "epsilon 4 per release, delta 1e-05 and 4 in total" in describe_sums(config)


@each_of(
    "settings, sums",
    [
        ({}, "exact"),
        ({"sums": "exact"}, "exact"),
        ({"epsilon": 1.0}, "noisy"),
        ({"epsilon": 1.0, "sums": "noisy"}, "noisy"),
    ],
)
def test_sums_are_as_epsilon_says(settings: Any, sums: str) -> None:
    assert Privacy(**settings).stated_sums == sums


@each_of(
    "settings, words",
    [
        ({"sums": "noisy"}, "sums is 'noisy' and privacy.epsilon is None, so no noise"),
        ({"sums": "exact", "epsilon": 1.0}, "set privacy.sums=noisy, or leave out"),
        ({"sums": "grouped"}, "it must be 'exact' or 'noisy'"),
    ],
)
def test_sums_that_do_not_fit_epsilon_are_refused(settings: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Privacy(**settings)


def test_a_choice_is_described_by_what_it_means_for_the_study() -> None:
    exact, noisy = describe_choices(configure("closed-form"))
    assert exact.startswith(f"exact: {PROMISES['exact']}")
    assert noisy == f"noisy: {PROMISES['noisy']}; {NOT_COVERED} (needs privacy.epsilon)"
    assert COUNTS in describe_choices(configure("fedavg"))[1]
    assert with_sums(configure("fedavg"), "exact").privacy.sums == "exact"


@pytest.mark.parametrize("page", ["privacy.md", "approval-sheet.md"])
def test_pages_state_the_sentences_of_a_study(page: str) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")
    for sentence in PROMISES.values():
        assert f"| {sentence[0].upper()}{sentence[1:]}. |" in text


def test_a_report_states_what_holds_for_the_rows_of_its_study(tmp_path: Path) -> None:
    config = {"name": "tiny", "data": "digits", "training": {"name": "closed-form"}}
    folder = write_study(tmp_path / "study", seeds=2, cycles=1, config=config)
    sent: Exposure = {"numbers": 999, "largest": 99, "rows": 24, "values": 13}
    left = {"kind": "sum", "function": "totals", "description": "sums", "bytes": 8}
    left |= {"bytes_down": 8, "sites": 3, "exchanges": 1}
    rewrite(folder, lambda record, cell: {"exposure": sent, "revealed": [left]})
    study = read_study(folder)
    (sentence,) = list_promises(study)
    assert sentence.startswith("exact: ")
    assert PROMISES["exact"] in sentence
    _, *notes = disclosure(study, "disclosure")
    assert Note(f"Sums are {sentence}.") in notes
    assert notes.count(Note(f"Each site sent {describe_exposure(sent)}.")) == 1
