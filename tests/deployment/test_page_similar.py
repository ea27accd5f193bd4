"""Test what the page shows from features: similar examples, and a prediction on demand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fallow.core.events import Event
from fallow.deployment.labeling_page import LabelQueue
from fallow.deployment.site.feature_space import FeatureSpace, open_feature_space
from fallow.privacy.settings import Privacy
from fallow.settings.spec import Spec
from tests.deployment.browser import NEEDS, chromium
from tests.deployment.hosts import agreement, folder
from tests.deployment.label_queues import enter, running
from tests.deployment.simulations import NAMES, Federation, federation, photos, rows
from tests.deployment.test_encoders import PICTURES
from tests.each import mark_long

pytest.importorskip("cryptography")
SITE = "basel"
CLOSED = replace(
    PICTURES,
    training=Spec("closed-form"),
    model=Spec("linear"),
    strategy=Spec("margin"),
    privacy=Privacy(secure_sum=True),
)


class Asked(Exception):
    """Signal that annotators are asked for the labels of the first query."""


def until_asked(folder: Path, **simulation: Any) -> Federation:
    """Return a federation with a trained model that waits for labels in cycle 0."""
    study = federation(folder, **simulation)

    def notify(event: Event) -> None:
        cycles = study.ledgers[SITE].cycles()
        if event["event"] == "labels" and max(cycles, default=-1) >= 0:
            raise Asked
        study.label(event)

    with pytest.raises(Asked):
        study.program(notify).go()
    return study


def queue_of(simulation: Federation) -> LabelQueue:
    site = simulation.sites[SITE]
    ledger = simulation.ledgers[SITE]
    return LabelQueue(
        study="hospitals",
        site=SITE,
        schema=site.agreement.schema,
        rows=site.rows,
        ledger=ledger,
        space=open_feature_space(site, ledger),
    )


@pytest.fixture(params=mark_long(["pictures", "a table"], ["pictures"]))
def queue(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LabelQueue]:
    config, data = CLOSED, photos()
    if request.param == "a table":
        config = replace(CLOSED, encoder=Spec("fourier", {"features": 24}))
        data = rows(NAMES[:3])
    simulation = until_asked(tmp_path, config=config, data=data)
    yield queue_of(simulation)
    simulation.close()


def test_the_nearest_labeled_rows_stand_beside_a_row(queue: LabelQueue) -> None:
    space = queue.space
    assert isinstance(space, FeatureSpace)
    (asked, *_) = queue.ledger.tasks(state="open")
    labels = {label.row: label.value for label in queue.ledger.store.load_labels(SITE)}
    site = space._read_site()
    assert site is not None
    z = site.seen[:].double()
    distance = {row: float((z[row] - z[asked.row]).norm()) for row in labels}
    expected = sorted(labels, key=distance.__getitem__)[:3]
    assert queue.list_similar(asked.row) == [(row, labels[row]) for row in expected]
    browser = enter(queue)
    browser.get(f"/sample/{asked.row}")
    shown = browser.shown.text.split('<section class="similar"')[1].split("</section>")[0]
    places = [shown.index(f">{queue.rows.ids[row]}</span>") for row in expected]
    assert places == sorted(places)
    assert [shown.count(f"<strong>{name}</strong>") for name in queue.schema.classes] == [
        sum(labels[row] == c for row in expected) for c in range(len(queue.schema.classes))
    ]
    is_picture = queue.rows.x.dim() == 4
    assert all((f'src="/picture/{row}"' in shown) == is_picture for row in expected)


def test_an_answer_counts_among_similar_rows_and_what_is_undecided_or_left_does_not(
    queue: LabelQueue,
) -> None:
    first, second, *_ = queue.ledger.tasks(state="open")
    before = {row for row, _ in queue.list_similar(first.row)}
    assert second.row not in queue._settled_labels()
    queue.ledger.answer(second.row, 1.0, "Ann")
    assert queue._settled_labels()[second.row] == 1.0
    queue.ledger.answer(second.row, 0.0, "Bea")
    assert queue.task(second.row).state == "conflict"  # type: ignore[union-attr]
    assert second.row not in queue._settled_labels()
    removed = next(iter(before))
    queue.ledger.withdraw(removed, "Ann")
    assert removed not in {row for row, _ in queue.list_similar(first.row)}


def test_the_guess_of_the_model_is_made_when_somebody_asks_for_it(
    queue: LabelQueue,
) -> None:
    space = queue.space
    assert space is not None
    (asked, *_) = queue.ledger.tasks(state="open")
    guess = space.guess(asked.row)
    assert guess is not None and guess.probability is not None
    assert guess.predicted == asked.reasons["predicted"]
    assert guess.probability == pytest.approx(asked.reasons["probability"])
    sentence = (
        "The global model predicts "
        f"“{queue.label(guess.predicted)}” with {100 * guess.probability:.0f} % probability."
    )
    browser = enter(queue)
    browser.get(f"/sample/{asked.row}")
    before = browser.shown.text.split('<details class="why"')[0]
    assert "predicts “" not in before
    assert f'href="/sample/{asked.row}?guess=yes#guess" data-key="g"' in before
    assert "Choose a label before you look" in before
    browser.get(f"/sample/{asked.row}?guess=yes")
    assert sentence in browser.shown.text.split('<details class="why"')[0]


def test_a_page_writes_nothing_into_the_ledger(queue: LabelQueue) -> None:
    (asked, *_) = queue.ledger.tasks(state="open")
    store = queue.ledger.store
    before = (store.load_labels(SITE), sorted(store.load_states(SITE)))
    enter(queue).get(f"/sample/{asked.row}?guess=yes")
    assert (store.load_labels(SITE), sorted(store.load_states(SITE))) == before


def test_a_study_without_an_encoder_has_neither(tmp_path: Path) -> None:
    site = folder(tmp_path, agreement("strategy=entropy"))
    with closing(site.open_ledger()) as ledger:
        assert open_feature_space(site, ledger) is None


def test_before_the_first_run_nothing_is_known(tmp_path: Path) -> None:
    site = folder(tmp_path, agreement("strategy=entropy", "encoder=fourier:features=8"))
    with closing(site.open_ledger()) as ledger:
        space = open_feature_space(site, ledger)
        assert space is not None
        assert space.find_nearest(0, [1, 2], 3) == []
        assert space.guess(0) is None and not space.has_model


class TestInABrowser:
    pytestmark = NEEDS

    @pytest.mark.parametrize("width", [1200, 360])
    @pytest.mark.parametrize("scheme", ["light", "dark"])
    def test_the_key_g_shows_the_guess_and_nothing_sticks_out(
        self, queue: LabelQueue, tmp_path: Path, width: int, scheme: str
    ) -> None:
        with chromium() as browser, running(queue, "Ann") as access:
            page = browser.new_context(
                viewport={"width": width, "height": 740}, color_scheme=scheme
            ).new_page()
            page.goto(access.address)
            page.wait_for_url("**/")
            page.wait_for_load_state()
            assert page.locator(".similar").count() == 1
            assert page.evaluate(
                "document.documentElement.scrollWidth <= window.innerWidth"
            )
            page.screenshot(path=tmp_path / "before.png", full_page=True)
            with page.expect_navigation():
                page.keyboard.press("g")
            assert "predicts" in page.locator("#guess").inner_text()
            page.screenshot(path=tmp_path / "after.png", full_page=True)
