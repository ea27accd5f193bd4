"""Test the guideline of a study, including hostile text in it."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from fallow.deployment.study_file import agreement_text, read_agreement, write_agreement
from tests.deployment.agreed import agreed
from tests.deployment.label_queues import enter, make_queue

TEXT = 'Ill: half a vessel or more.\n\nElse "healthy"; \\ and """ are letters, as is ä.'
MARKUP = (
    '<script>alert(1)</script></p><img src=x onerror="alert(2)"> {{ queue.site }} **b**'
)


def test_an_agreement_without_a_guideline_has_none_in_its_file() -> None:
    agreement = agreed()
    assert agreement.guideline is None
    assert "guideline" not in agreement_text(agreement)


def test_a_guideline_is_agreed_on_and_comes_back_from_its_file(tmp_path: Path) -> None:
    details = agreed(guideline=TEXT)
    write_agreement(tmp_path / "study.toml", details)
    again = read_agreement(tmp_path / "study.toml")
    assert again == details and again.guideline == TEXT
    digests = {agreed(guideline=text).digest for text in (TEXT, TEXT + "!", None)}
    assert len(digests) == 3


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is empty or has leading or trailing space"),
        (" \n", "is empty or has leading or trailing space"),
        ("a" * 4001, "has 4001 characters, more than 4000"),
        ("a\x1b[31mb", "the character '\\x1b'"),
        ("a\u202eb", "the character '\\u202e'"),
        ("a\rb", "the character '\\r'"),
    ],
)
def test_a_guideline_that_is_not_fit_to_be_shown_is_refused(
    tmp_path: Path, text: str, why: str
) -> None:
    with pytest.raises(ValueError, match=r"federation\.guideline") as refused:
        agreed(guideline=text)
    assert why in str(refused.value)

    file = tmp_path / "study.toml"
    quoted = "".join(f"\\u{ord(peer_message):04x}" for peer_message in text)
    line = f'[federation]\nguideline = "{quoted}"\n'
    written = agreement_text(agreed()).replace("[federation]\n", line)
    assert tomllib.loads(written)["federation"]["guideline"] == text
    file.write_text(written, encoding="utf-8")
    with pytest.raises(ValueError, match=r"federation\.guideline"):
        read_agreement(file)


def test_a_guideline_that_is_no_text_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "study.toml"
    written = agreement_text(agreed()).replace(
        "[federation]\n", "[federation]\nguideline = 3\n"
    )
    file.write_text(written, encoding="utf-8")
    with pytest.raises(ValueError, match=r"federation\.guideline is 3; it must be a text"):
        read_agreement(file)


def test_a_guideline_stands_beside_the_sample_as_text_whatever_is_in_it(
    tmp_path: Path,
) -> None:
    browser = enter(replace(make_queue(tmp_path), guideline=MARKUP))
    browser.get()
    page = browser.shown.text
    assert "Labeling guideline" in page
    assert "<script>alert" not in page and "<img" not in page and 'onerror="' not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;&lt;/p&gt;&lt;img src=x" in page
    assert "{{ queue.site }} **b**" in page


def test_without_a_guideline_there_is_no_box_for_one(tmp_path: Path) -> None:
    browser = enter(make_queue(tmp_path))
    browser.get()
    assert "uideline" not in browser.shown.text
