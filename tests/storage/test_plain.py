"""Test which characters are shown of untrusted text."""

from __future__ import annotations

import unicodedata

import pytest

from fallow.deployment.received import check_texts
from fallow.storage.plain import one_line, plain, printable

UNSEEN = {
    "zero-width space": "\u200b",
    "word joiner": "\u2060",
    "byte-order mark": "\ufeff",
    "soft hyphen": "\u00ad",
    "tag letter": "\U000e0041",
    "filler": "\u3164",
    "blank Braille pattern": "\u2800",
    "variation selector": "\U000e0101",
    "joiner in a Latin word": "\u200d",
    "Egyptian format control": "\U00013430",
    "right-to-left override": "\u202e",
}


@pytest.mark.parametrize("hidden", UNSEEN.values(), ids=UNSEEN)
def test_a_character_without_a_width_is_not_shown(hidden: str) -> None:
    for text in (f"no{hidden}rth", f"{hidden}north", f"north{hidden}{hidden}"):
        assert plain(text) == one_line(text) == printable(text) == "north"


@pytest.mark.parametrize("hidden", UNSEEN.values(), ids=UNSEEN)
def test_a_received_name_with_a_character_without_a_width_is_refused(hidden: str) -> None:
    for text in (f"no{hidden}rth", f"{hidden}north"):
        with pytest.raises(ValueError, match="which changes how other text is shown"):
            check_texts({"sites": [text]})


def test_every_format_character_is_hidden_or_has_a_width() -> None:
    """Check against the table of Python: visible format characters precede numbers."""
    visible = []
    for code in range(0x110000):
        if unicodedata.category(chr(code)) == "Cf" and plain(chr(code)):
            visible.append(unicodedata.name(chr(code)))
    words = ("SIGN", "MARK", "AYAH", "HIEROGLYPH", "SAFHA", "SAMVAT", "DISPUTED")
    assert visible
    assert all(any(word in name for word in words) for name in visible), visible


@pytest.mark.parametrize(
    "text",
    [
        "\u0645\u06cc\u200c\u0631\u0648\u0645",
        "\u0915\u094d\u200d\u0937",
        "\u2764\ufe0f",
        "\U0001f469\u200d\U0001f52c",
    ],
    ids=["Persian", "Hindi", "heart", "scientist"],
)
def test_words_and_pictographs_keep_their_joiners(text: str) -> None:
    assert plain(text) == printable(text) == text
    check_texts({"classes": [text]})


def test_joiners_do_not_accumulate_after_a_sign_of_a_picture() -> None:
    assert plain("+" + 50 * "\ufe0f" + "\u200d") == "+"
    heart = "\u2764\ufe0f"
    assert plain(heart + 50 * "\ufe0f\u200d") == heart + "\u200d"
