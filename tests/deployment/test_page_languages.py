"""Test the languages of the labeling page: every text exists in each, and one is chosen."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from fallow.deployment.answer_plan import AnswerPlan
from fallow.deployment.labeling_page import languages
from fallow.deployment.labeling_page.languages import load_translations
from fallow.deployment.labeling_page.views import HERE, templates
from fallow.deployment.ledger.labeling_tasks import Reasons
from fallow.deployment.no_label import NO_LABELS, NOT_GRADABLE
from fallow.deployment.site.settings import LANGUAGES
from tests.deployment.label_queues import (
    BLIND,
    DIGITS,
    DOSE,
    FACTS,
    GUIDED,
    Browser,
    ask,
    close,
    enter,
    guess,
    make_checks,
    make_queue,
    outside,
    picture_rows,
)

CALLS = ("translate", "find_text", "find_count_text", "text_id", "Mistake", "Outdated")
PLACEHOLDER = re.compile(r"%\(\w+\)s|\{(?!day)\w+\}|</?\w+[^>]*>")
SHOWN = ("alt", "aria-label", "title", "placeholder", "data-text")
WORD = re.compile(r"[^\W\d_]{2}")
NAMES = {  # names in the data and proper names, which are the same in every language
    *("heart", "cleveland", "Ann", "Bo", "disease", "healthy", "ill", "dose", "mg"),
    *("age", "years", "sex", "male", "female", "chol", "mg/dl", "zero", "one", "two"),
    *LANGUAGES.values(),
}


def texts_in_code() -> Iterator[str]:
    """Yield the English texts in the Python files and templates of the page."""
    yield NOT_GRADABLE
    yield from (answer.name for answer in NO_LABELS)
    for file in HERE.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in CALLS:
                for argument in node.args:
                    if isinstance(argument, ast.Constant):
                        yield str(argument.value)
    for file in (HERE / "templates").glob("*.html"):
        source = file.read_text(encoding="utf-8")
        for _, _, text in templates().extract_translations(source):  # type: ignore[attr-defined]
            yield from (text,) if isinstance(text, str) else filter(None, text)


def test_every_text_has_a_translation_and_every_translation_a_text() -> None:
    texts = set(texts_in_code())
    known = set(load_translations())
    assert texts - known == set(), "add these to languages.toml"
    assert known - texts == set(), "these are not used: remove them from languages.toml"
    assert len(texts) > 150


def test_translations_have_the_placeholders_of_their_text() -> None:
    others = set(LANGUAGES) - {"en"}
    for text, translations in load_translations().items():
        assert set(translations) == others, text
        for language, translated in translations.items():
            wanted = sorted(PLACEHOLDER.findall(text))
            if ">Esc<" in text or ">Enter<" in text:  # names of keys differ
                wanted.sort()
            placeholders = sorted(PLACEHOLDER.findall(translated))
            assert placeholders == wanted, (language, text)
            assert translated.strip() == translated or text in ",.", (language, text)


class Visible(HTMLParser):
    """Collect what a reader sees or hears, except texts that are marked as English."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.parts: list[str] = []
        self._open: list[bool] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.parts += [values[name] or "" for name in SHOWN if name in values]
        if tag not in ("meta", "link", "input", "img", "br"):
            is_hidden = tag in ("kbd", "script", "noscript") or values.get("lang") == "en"
            self._open.append(is_hidden)

    def handle_endtag(self, tag: str) -> None:
        self._open.pop()

    def handle_data(self, data: str) -> None:
        if not any(self._open):
            self.parts.append(data)


def pages_of(folder: Path) -> Iterator[str]:
    """Yield every page of the site in its states, as HTML, in the pseudo-language."""
    (folder / "conflict").mkdir()
    (folder / "images").mkdir()
    (folder / "check").mkdir()
    (folder / "guided").mkdir()
    (folder / "dose").mkdir()
    queue = make_queue(folder, asked={3: {"predicted": 1.0}, 1: {}, 4: {}})
    queue = replace(queue, describe_data=lambda: FACTS)
    browser = enter(queue)

    def get(path: str, browser: Browser = browser) -> str:
        browser.get(f"{path}?language=xx")
        return browser.shown.text

    yield get("/")
    browser.send("/answer", value="1")
    yield browser.shown.text
    form = browser.hidden("/answer")
    browser.post("/answer", {**form, "row": "3", "value": "0"})  # outdated
    yield browser.shown.text
    for fields in (
        {**form, "cannot": "other", "why": "Ann"},
        {**form, "row": "99"},
    ):
        browser.post("/answer", fields)
        yield browser.shown.text
    for path in ("/sample/3", "/sample/1", "/mine", "/data", "/withdraw/4", "/name"):
        yield get(path)
    yield get("/nowhere")
    browser.post("/withdraw", {"row": "4", "why": " "})
    yield browser.shown.text
    browser.post("/withdraw", {"row": "4", "why": "Ann", "sure": "yes"})
    yield browser.shown.text
    yield get("/sample/4")
    ask(queue.ledger, (5,), cycle=1)
    yield get("/sample/5")
    close(queue.ledger, 1)
    yield get("/sample/5")
    stranger = outside(queue)
    yield get("/", stranger)

    queue = make_queue(folder / "conflict", asked=(3,))
    queue.ledger.answer(3, 1.0, "Ann")
    queue.ledger.answer(3, None, "Bo", reason="none")
    queue = replace(queue, plan=AnswerPlan(none_of_these=True))
    browser = enter(queue)
    yield get("/conflicts", browser)
    yield get("/sample/3", browser)
    yield get("/conflicts", enter(replace(queue, adjudicators=("Bo",))))
    browser.get("/conflicts")
    browser.send("/resolve", cannot="yes")
    yield browser.shown.text
    yield get("/sample/3", browser)
    queue = make_checks(folder / "check")
    browser = enter(queue)
    yield get("/suspicious", browser)
    yield get("/sample/3", browser)
    browser.get("/sample/3?language=xx")
    browser.send("/answer", value="0")
    for path in ("/", "/suspicious", "/sample/3", "/conflicts"):
        yield get(path, browser)
    images = make_queue(folder / "images", DIGITS, picture_rows(folder / "images"))
    yield get("/", enter(images))
    yield get("/", enter(make_queue(folder / "dose", DOSE)))
    asked: dict[int, Reasons] = {3: guess(1, 0.6), 4: guess(1, 0.7), 5: BLIND}
    guided = make_queue(folder / "guided", asked=asked)
    browser = enter(replace(guided, plan=GUIDED))
    for path in ("/", "/sample/5", "/sheet"):
        yield get(path, browser)
    browser.send("/confirm", **{"wrong-3": "yes"})
    yield browser.shown.text
    yield get("/sample/4", browser)


def test_no_page_shows_a_text_that_has_no_translation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All texts are in brackets in the pseudo-language: words outside them are names."""
    table = {
        text: {**translations, "xx": text if text in ",." else f"⟦{text}⟧"}
        for text, translations in load_translations().items()
    }
    monkeypatch.setattr(languages, "load_translations", lambda: table)
    monkeypatch.setitem(LANGUAGES, "xx", "Pseudo")
    pages = 0
    for html in pages_of(tmp_path):
        assert '<html lang="xx">' in html
        pages += 1
        for part in [" ".join(Visible(html).parts)]:
            while "⟦" in part:  # an inner text may be in the placeholder of an outer one
                part, n = re.subn(r"⟦[^⟦⟧]*⟧", " ", part)
                assert n, part
            rest = re.sub(r"patient-\d+|scan-\d+\.png|Pseudo", " ", part)
            words = {word for word in re.split(r"[\s·,:“”().]+", rest) if WORD.search(word)}
            assert words <= NAMES, words - NAMES
    assert pages > 20


def test_the_language_is_that_of_the_browser_until_one_is_chosen(tmp_path: Path) -> None:
    queue = make_queue(tmp_path)
    browser = enter(queue)
    german = {"accept-language": "it, de-CH;q=0.9, en;q=0.5"}
    browser.request("GET", "/", headers=german)
    assert '<html lang="de">' in browser.shown.text
    assert "Fall patient-3" in browser.text and "Überspringen" in browser.text
    assert 'href="?language=fr" lang="fr"' in browser.shown.text
    browser.request("GET", "/?language=fr", headers=german)
    browser.request("GET", "/mine", headers=german)
    assert "Vous n’avez encore rien annoté, Ann." in browser.text
    browser.request("GET", "/?language=xx", headers=german)
    assert "Cas patient-3" in browser.text
    form = {**browser.hidden("/answer"), "value": "9"}
    assert "n’est pas une classe de cette étude" in browser.post("/answer", form)
    assert 'href="/?language=de"' in browser.shown.text  # its own address takes forms only


def test_the_setting_of_the_site_replaces_the_language_of_the_browser(
    tmp_path: Path,
) -> None:
    browser = enter(replace(make_queue(tmp_path), language="es"))
    browser.request("GET", "/", headers={"accept-language": "de"})
    assert "Caso patient-3" in browser.text
    browser.request("GET", "/state?row=3", headers={"accept-language": "de"})
    assert browser.shown.json()["summary"].startswith("0 de 3 completados")


def test_numbers_and_times_are_written_as_in_the_language(tmp_path: Path) -> None:
    queue = make_queue(tmp_path, DOSE, asked={3: {"predicted": 1234.5, "score": 0.25}})
    browser = enter(replace(queue, language="de"))
    text = browser.get()
    assert "sagt „1234,5 mg“ vorher" in text and "den Wert 0,25" in text
    browser.send("/answer", value="2,5")
    browser.get("/sample/3")
    assert re.search(r"Sie haben am \d\d\.\d\d\.\d{4}, \d\d:\d\d Uhr 2,5 mg", browser.text)
