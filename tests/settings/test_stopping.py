"""The message that explains when a run stops."""

from __future__ import annotations

import pytest

from fallow.settings.config import ExperimentConfig, with_settings
from fallow.settings.stopping import EXAMPLE, StopRule, parse_stop


def test_a_sentence_says_a_rule_and_a_rule_its_sentence() -> None:
    rule = parse_stop(EXAMPLE)
    assert rule == StopRule(100, 0.003, 0.9)
    assert str(rule) == EXAMPLE
    assert parse_stop(str(rule)) == rule


@pytest.mark.parametrize(
    "text",
    [
        "When  another 100 labels bring less than 0.3 points with 90% confidence",
        "when another 100 labels bring less than 0.30 points with 90.0 % confidence",
    ],
)
def test_case_spaces_and_zeros_do_not_matter(text: str) -> None:
    assert parse_stop(text) == parse_stop(EXAMPLE)


def test_one_label_and_one_point_are_written_in_the_singular() -> None:
    text = "when another 1 label brings less than 1 point with 50 % confidence"
    assert parse_stop(text) == StopRule(1, 0.01, 0.5)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "'when another' is missing at its end"),
        ("soon", "'when another' is missing where 'soon' stands"),
        ("when another many labels", "a whole number of labels is missing where 'many"),
        ("when another 1.5 labels", "a whole number of labels is missing where '1.5"),
        (
            "when another 100 rows",
            "'labels bring less than' is missing where 'rows' stands",
        ),
        (
            "when another 100 labels bring less than a point",
            "a number of points, such as 0.3 is missing where 'a point' stands",
        ),
        (
            "when another 100 labels bring less than 0.3 %",
            "'points with' is missing where '%' stands",
        ),
        (
            "when another 100 labels bring less than 0.3 points with 90",
            "'% confidence' is missing at its end",
        ),
        (f"{EXAMPLE} or so", "and ends with 'or so'"),
        (EXAMPLE.replace("another 100", "another 0"), "it asks about 1 label or more"),
        (EXAMPLE.replace("0.3", "0"), "points are above 0 and at most 100"),
        (EXAMPLE.replace("0.3", "101"), "points are above 0 and at most 100"),
        (EXAMPLE.replace("90", "100"), "at least 50 % and below 100 %"),
        (EXAMPLE.replace("90", "9"), "at least 50 % and below 100 %"),
    ],
)
def test_wrong_words_are_named_with_the_form_that_is_right(text: str, why: str) -> None:
    with pytest.raises(ValueError, match="stop is ") as caught:
        parse_stop(text)
    assert why in str(caught.value)
    with pytest.raises(ValueError, match="stop is "):
        with_settings(ExperimentConfig("a"), {"stop": text or "' '"})


@pytest.mark.parametrize(
    "text",
    [
        EXAMPLE.replace("100", "9" * 5000),
        EXAMPLE.replace("100", "9" * 4000),
        EXAMPLE.replace("100", "٣"),
        EXAMPLE.replace("0.3", "9" * 5000),
        EXAMPLE.replace("0.3", "0." + "3" * 5000),
        EXAMPLE + " x" * 5000,
    ],
)
def test_numbers_and_sentences_without_end_are_refused_in_a_short_sentence(
    text: str,
) -> None:
    with pytest.raises(ValueError, match="stop is ") as caught:
        parse_stop(text)
    assert len(str(caught.value)) < 600


def test_the_rule_is_part_of_a_digest_only_where_there_is_one() -> None:
    assert ExperimentConfig("a").digest == ExperimentConfig("a", stop=None).digest
    assert ExperimentConfig("a").digest != ExperimentConfig("a", stop=EXAMPLE).digest
    assert with_settings(ExperimentConfig("a"), {"stop": EXAMPLE}).stop == EXAMPLE
