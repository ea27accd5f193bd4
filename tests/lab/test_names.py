from __future__ import annotations

import pytest

from fallow.lab.names import Strategy, faithful, label

NAMES = {"ksas": "KAFAL", "ksas@training=kcfu": "KAFAL, full"}


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ("entropy", "entropy"),
        ("ksas", "KAFAL"),
        ("ksas@training=kcfu", "KAFAL, full"),
        ("ahfal@training=fedprox:mu=0.1", "ahfal + fedprox:mu=0.1"),
        ("ksas@local_source=finetune@training=kcfu", "KAFAL + local_source=finetune + kcfu"),
        ("fallow.compat:NaNKSAS", "NaNKSAS (code)"),
        ("fallow.compat:NaNKSAS@training=kcfu", "NaNKSAS (code) + kcfu"),
        ("bound:all-labels", "all labels"),
        ("odd@", "odd + "),
    ],
)
def test_a_strategy_is_called_as_a_reader_would(query, shown):
    assert label(query, NAMES) == shown


@pytest.mark.parametrize(
    ("code", "paper"),
    [
        ("RatioAHFAL", "ahfal"),
        ("PixelBADGE", "badge"),
        ("PlainLoGo", "logo"),
        ("PlainNoise", "noise-stability"),
        ("PlainFEAL", "feal"),
        ("NaNKSAS", "ksas"),
        ("Plain", None),
    ],
)
def test_the_code_of_a_method_finds_its_paper(code, paper):
    names = ["random", "entropy", "ahfal", "badge", "logo", "noise-stability", "feal", "ksas"]
    assert faithful(code, names) == paper


def test_every_class_of_published_code_finds_its_paper():
    from fallow import compat, queries
    from fallow.core.build import names

    for code in names(compat):
        assert faithful(code, names(queries)), code


def test_a_text_of_another_form_is_a_name_as_a_whole():
    assert Strategy.parse("a:b=1:c").spec.name == "a:b=1:c"
    assert Strategy.parse("module:Class:k=3@training=kcfu").spec.fields == {"k": 3}
