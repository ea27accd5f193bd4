"""The site's ledger: repeated releases are replayed, and spent budget stays spent."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from scipy import stats

from fallow.experiment.event_log import EventLog
from fallow.privacy.ledger import Released
from fallow.privacy.settings import Privacy
from fallow.sites.in_process import InProcessChannel
from fallow.storage.errors import StorageError
from fallow.strategies import AHFAL
from fallow.transport.serialized import SerializingChannel
from tests.keys import key_of
from tests.privacy.federation import Asker, Losing, asking, protected
from tests.simulations import Simulation

ONE = Privacy(epsilon=1.0)


def counts(federation: Simulation) -> torch.Tensor:
    true_counts = [
        torch.bincount(s.labels, minlength=3) for s in federation.members.values()
    ]
    return torch.stack(true_counts).sum(0).double()


@pytest.mark.parametrize("runtime", [InProcessChannel, SerializingChannel])
def test_counts_leave_with_noise_and_the_exchange_says_what_it_cost(runtime: Any) -> None:
    federation = protected(ONE, runtime=runtime)
    total = asking(federation).sum(Asker().share)["counts"]
    assert not torch.equal(total, counts(federation))
    (row,) = federation.shown.rows()
    assert row["epsilon"] == 1.0 and "masked" not in row


@pytest.mark.parametrize("source", ["seeded", "os"])
def test_the_noise_that_leaves_has_scale_sensitivity_over_epsilon(source: str) -> None:
    federation = protected(Privacy(epsilon=0.5, total=1e6), noise=source)
    noise: list[float] = []
    for cycle in range(150):
        for name, reply in asking(federation, cycle=cycle).each(Asker().share).items():
            true_counts = torch.bincount(federation.members[name].labels, minlength=3)
            noise += (torch.as_tensor(reply["counts"]) - true_counts).tolist()
    assert stats.kstest(noise, stats.laplace(scale=2 / 0.5).cdf).pvalue > 1e-4
    assert stats.kstest(noise, stats.laplace(scale=1 / 0.5).cdf).pvalue < 1e-4


def test_noise_at_a_real_site_does_not_follow_from_the_seed_of_the_study() -> None:
    """Check that noise does not derive from the public seed, so it cannot be subtracted."""
    one, other = (asking(protected(ONE, noise="os")).sum(Asker().share) for _ in range(2))
    assert not torch.equal(one["counts"], other["counts"])


def test_without_epsilon_counts_leave_as_they_are_and_nothing_is_spent() -> None:
    federation = protected(Privacy())
    assert torch.equal(asking(federation).sum(Asker().share)["counts"], counts(federation))
    assert "epsilon" not in federation.shown.rows()[0]
    assert federation.members["a"].store.load_releases("a") == {}


def test_asking_again_under_the_same_key_gives_the_stored_answer() -> None:
    federation = protected(ONE, noise="os")
    first, again = (asking(federation).sum(Asker().share)["counts"] for _ in range(2))
    assert torch.equal(first, again)
    assert federation.members["a"].spent == {"0/query/0": 1.0}
    assert federation.shown.rows()[0]["epsilon"] == 1.0  # the second release was free


def test_the_same_key_with_another_question_is_refused() -> None:
    federation = protected(ONE)
    asking(federation).sum(Asker().share)
    with pytest.raises(ValueError, match="site a has replied to 0/query/0 before"):
        asking(federation).each(Asker().share, to={"a": {"times": 2.0}})


def test_the_sixth_release_of_five_is_refused_in_words() -> None:
    federation = protected(ONE, strategies=5)
    for cycle in range(5):
        asking(federation, cycle=cycle).sum(Asker().share)
    with pytest.raises(
        ValueError, match=r"site a has spent epsilon 5 of 5 in 5 releases.*raise"
    ):
        asking(federation, cycle=5).sum(Asker().share)
    assert len(federation.members["a"].spent) == 5


def test_a_site_without_a_total_releases_once() -> None:
    federation = protected(ONE)
    for site in federation.members.values():
        site.parts = replace(site.parts, privacy=ONE)  # the number of queries is not given
    asking(federation).sum(Asker().share)
    with pytest.raises(ValueError, match="site a has spent epsilon 1 of 1 in 1 releases"):
        asking(federation, cycle=1).sum(Asker().share)


def test_what_is_spent_is_spent_after_a_restart(tmp_path: Path) -> None:
    asked: list[torch.Tensor] = []
    for _ in range(2):
        federation = protected(ONE, noise="os")
        event_log = EventLog(tmp_path / "event_log.sqlite")
        for site in federation.members.values():
            site.store = event_log
        asked.append(asking(federation).sum(Asker().share)["counts"])
        with pytest.raises(ValueError, match="site a has spent epsilon 1 of 1"):
            asking(federation, cycle=1).sum(Asker().share)
        event_log.close()
    assert torch.equal(*asked)


def test_small_releases_add_up_to_the_total_in_spite_of_rounding() -> None:
    federation = protected(Privacy(epsilon=0.1, total=0.3))
    for cycle in range(3):
        asking(federation, cycle=cycle).sum(Asker().share)
    with pytest.raises(ValueError, match=r"spent epsilon 0\.3 of 0\.3"):
        asking(federation, cycle=3).sum(Asker().share)


def test_plain_numbers_of_a_query_do_not_leave_under_local_privacy() -> None:
    with pytest.raises(
        ValueError, match=r"'plain' under local privacy .* must return Release"
    ):
        asking(protected(ONE)).sum(Asker().plain)


def test_what_stays_at_the_site_needs_no_noise() -> None:
    federation = protected(ONE)
    asking(federation).keep(Asker().share)
    site = federation.members["a"]
    kept = site.memory["share"]["counts"]
    assert torch.equal(kept, torch.bincount(site.labels, minlength=3).double())
    assert site.spent == {}


def test_ahfal_sends_shares_of_noisy_counts_that_are_shares() -> None:
    federation = protected(Privacy(epsilon=0.1), AHFAL())
    channel = Losing(federation.channel)
    asking(federation, channel).sum(Asker().share)
    for name, reply in channel.seen[0][1].items():
        true_counts = torch.bincount(federation.members[name].labels, minlength=3).double()
        share = torch.as_tensor(reply["share"])
        assert float(share.min()) >= 0 and float(share.sum()) == pytest.approx(1)
        assert not torch.allclose(share, true_counts / true_counts.sum())


def test_a_release_survives_the_file_and_a_changed_byte_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "event_log.sqlite"
    line = Released(0.5, "d", {"x": torch.ones(2), "n": 1.0})
    first = EventLog(path)
    first.spend("a", "0/query/0", line)
    first.hide("a", {"name": "k", "secret": torch.zeros(3)})
    first.hide("a", {"name": "l"})
    first.close()
    again = EventLog(path)
    released = again.load_releases("a")["0/query/0"]
    assert released[:2] == line[:2]
    assert torch.equal(torch.as_tensor(released.reply["x"]), torch.ones(2))
    assert again.load_releases("b") == {} and again.load_secret("b") is None
    assert again.load_secret("a") == {"name": "l"}
    again._write("UPDATE privacy_spending SET key = '1/query/0'")
    with pytest.raises(StorageError, match="is stored under another key"):
        again.load_releases("a")
    again._write(
        "UPDATE privacy_spending SET line = CAST(X'00' || substr(line, 2) AS BLOB)"
    )
    with pytest.raises(StorageError, match="damaged"):
        again.load_releases("a")
    again.close()


def test_a_release_is_spent_only_together_with_the_exchange_that_it_answers() -> None:
    federation = protected(ONE)
    event_log = EventLog()
    for site in federation.members.values():
        site.store = event_log
    ask = asking(federation, event_log=event_log)
    with pytest.raises(ZeroDivisionError), event_log.transaction():
        ask.sum(Asker().share)
        raise ZeroDivisionError
    assert (
        event_log.load_releases("a") == {}
        and event_log.recall(key_of("0/query/0"), "") is None
    )
