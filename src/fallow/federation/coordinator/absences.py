"""What the coordinator proceeds without: sites in one round or query, and sites that left the study.

Both are notes in the journal, so they hold after any restart.  What was recorded in the open round
or query is dropped and asked again of the other sites under new keys (`Remote.wire_key`), because
at a site one key never means two things.

Notes
-----
Sites remember what they did since, such as a personal model or batch-norm statistics of their own;
a round that is repeated goes on from there.  What travels with an order is as it was before.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from fallow.core.contract import Contract
from fallow.core.types import SiteId, Tree
from fallow.experiment.journal import Journal
from fallow.federation.agreement import Agreement
from fallow.network.remote import AGAIN, BEFORE, find_step
from fallow.privacy.settings import SMALLEST

# what the journal notes
ABSENT = "absent"  # sites that a round or query goes on without
LEFT = "left"  # sites that left
HELLO = "0/hello"
SCALING = ("/cells", "/encoder", "/encode", "/features", "/targets", "/tuned")
"""The ends of the keys of what all sites must take part in to take part in anything."""
PEOPLE = ("ask", "close")
"""The ends of the keys of a step in which people are asked, and in which that is over."""
APART = (*PEOPLE, "score", "encoder", "encode", "features", "best", "last")
"""The ends of keys under which more is asked in a round or step than by its method."""
FINISH = "model/finish"


@dataclass(frozen=True)
class Absence:
    """A round or query goes on without ``site``, by its key such as ``0/train/3``; ``at``: when
    that was decided, as ISO text."""

    site: SiteId
    key: str
    at: str


def load_absences(journal: Journal) -> list[Absence]:
    """The sites that rounds and queries of a run go on without, oldest first."""
    return [Absence(**line) for line in json.loads(journal.read_note(ABSENT) or "[]")]


def load_left(journal: Journal) -> dict[SiteId, str]:
    """The sites that the study goes on without, and since when, as ISO text."""
    left: dict[SiteId, str] = json.loads(journal.read_note(LEFT) or "{}")
    return left


def find_absent(journal: Journal, key: str) -> set[SiteId]:
    """The sites that a round or query goes on without."""
    return {absence.site for absence in load_absences(journal) if absence.key == key}


def describe_absence(absence: Absence) -> str:
    """What a site is told."""
    return (
        f"the coordinator proceeds without this site in {describe_key(absence.key)}, because an "
        "answer did not arrive in time: what this site answered there does not count"
    )


def describe_key(key: str) -> str:
    """A round or query as people call it.

    >>> describe_key("0/train/3"), describe_key("1/query"), describe_key("0/initial/close")
    ('round 4 of cycle 0', 'the query of cycle 1', 'the end of the first labels')
    """
    last = key.rpartition("/")[2]
    if last in PEOPLE:
        step = describe_key(find_step(key))
        if last == "ask":
            return f"asking people in {step}"
        return f"the end of {step}"
    if last == "score":
        return f"the scores of {describe_key(key.rpartition('/')[0])}"
    cycle, _, rest = key.partition("/")
    kind, _, number = rest.partition("/")
    if kind == "train" and number.isdecimal():
        return f"round {int(number) + 1} of cycle {cycle}"
    if kind.startswith("query"):
        part = kind.partition("-")[2]
        if part:
            return f"the query of cycle {cycle} (part {int(part) + 1})"
        return f"the query of cycle {cycle}"
    if kind == "audit":
        return f"the audit of cycle {cycle}"
    if key == "0/tuned":
        return "the choice of the encoder's field"
    if key == "0/initial":
        return "the first labels"
    return key


# -- one round or query -------------------------------------------------------------------------


def leave_out(
    journal: Journal,
    agreement: Agreement,
    contracts: Mapping[str, Contract],
    *,
    sites: Sequence[SiteId],
    key: str,
    at: str,
) -> None:
    """Go on without sites in the round or query whose exchange ``key`` waits for them.

    contracts: of the study's methods, by the part that they play.  Raises ValueError, in a
    sentence, where the method needs them.
    """
    place = _find_place(key)
    _check_place(journal, agreement, contracts, place, sites)
    absences = [*load_absences(journal), *(Absence(site, place, at) for site in sites)]
    with journal.transaction():
        journal.note(ABSENT, json.dumps([asdict(absence) for absence in absences]))
        of_place = [name for name in journal.exchanges() if name.startswith(f"{place}/")]
        journal.take_back(of_place)
        ask_anew(journal, find_step(place))


def _find_place(key: str) -> str:
    """The round or query that an exchange belongs to: its key without the number of the exchange,
    the leg of a relay and how often it was asked."""
    parts = key.partition("~")[0].split("/")
    if parts[-1] == "deliver":
        parts = parts[:-1]
    size = 2  # of a step such as "1/query"
    if len(parts) > 1 and parts[1] == "train":
        size = 3  # of a round such as "1/train/3"
    if parts[size : size + 1] and parts[size] in APART:
        size += 1
    return "/".join(parts[:size])


def _check_place(
    journal: Journal,
    agreement: Agreement,
    contracts: Mapping[str, Contract],
    place: str,
    sites: Sequence[SiteId],
) -> None:
    """Raise ValueError unless a round or query can go on without sites."""
    last = place.rpartition("/")[2]
    if place == FINISH or last in PEOPLE:
        return  # nothing rests on it: the labels of a site enter when it is asked next
    owner = contracts["query"]
    needs_all = owner.everyone
    if find_step(place).endswith("/train"):
        owner = contracts["training"]
        needs_all = owner.everyone or bool(owner.relay)
    if needs_all:
        raise ValueError(
            f"{owner.title} needs every site in every round, so that no answer can be left out"
        )
    removed = {*find_absent(journal, place), *load_left(journal), *sites}
    stay = len(agreement.sites) - len(removed)
    if stay < owner.cohort:
        raise ValueError(
            f"{stay} sites would be left in {describe_key(place)}, and {owner.title} needs "
            f"{owner.cohort}"
        )


def ask_anew(journal: Journal, step: str) -> None:
    """What a step asks from now on, it asks under keys that no site knows."""
    name = f"{AGAIN}{step}"
    journal.note(name, str(int(journal.read_note(name) or 0) + 1))


# -- what the server half stops on ------------------------------------------------------------


def take_back_last(journal: Journal) -> str | None:
    """Forget the exchange that was recorded last, because the server half has stopped on what it
    brought; its key, or None where there is none.  It is asked again under a new key."""
    recorded = journal.exchanges()
    if not recorded or find_step(recorded[-1]) == HELLO:
        return None
    key = recorded[-1]
    with journal.transaction():
        journal.take_back([key])
        ask_anew(journal, find_step(key))
        before: Tree = json.loads(journal.read_note(BEFORE) or "{}")
        if before.get("key") == key:  # what sites did in it does not count either
            for site, counted in before["counted"].items():
                journal.note(f"counted/{site}", counted)
    return key


# -- leaving ----------------------------------------------------------------------------------


def is_of_all(key: str) -> bool:
    """Whether an exchange is one without which a site can take part in nothing."""
    return key.partition("~")[0].rpartition("/")[0].endswith(SCALING)


def can_advance(agreement: Agreement, key: str, gone: Iterable[SiteId]) -> bool:
    """Whether a run can go on without the sites that an exchange waits for.

    A study begins with all its sites, and what is masked begins anew by itself.
    """
    if find_step(key) == HELLO or agreement.recipe.privacy.secure_sum:
        return False
    return explain_too_few(agreement, gone) is None


def explain_too_few(agreement: Agreement, gone: Iterable[SiteId]) -> str | None:
    """Why a study cannot go on without some sites; None where it can."""
    stay = len(agreement.sites) - len(set(gone))
    least = agreement.waits.quorum or 1
    if agreement.recipe.privacy.secure_sum:
        least = max(least, SMALLEST)
    if stay >= least:
        return None
    return (
        f"{stay} of {len(agreement.sites)} sites would be left, and the study needs {least} "
        "(the quorum in study.toml, and 3 for secure sums)"
    )


def leave(journal: Journal, sites: Iterable[SiteId], at: str, key: str) -> None:
    """Go on without sites for the rest of the study; the open step, in which the exchange ``key``
    waited for them, begins again."""
    with journal.transaction():
        journal.note(LEFT, json.dumps(load_left(journal) | dict.fromkeys(sites, at)))
        recorded = journal.exchanges()
        journal.take_back(recorded)
        for step in sorted({find_step(name) for name in [key, *recorded]}):
            ask_anew(journal, step)
