"""Absent sites: left out of one round or query, or removed from the study.

Absences are recorded in the event log and survive a restart. Results of the open round or query are
discarded and requested again from the other sites under new keys (`Remote.wire_key`), because a key
must have a single meaning at a site.

Notes
-----
Sites keep state that they changed in a discarded round, such as a personalized model or
batch-norm statistics. The repeated round continues from that state. The data sent with an
instruction is unchanged.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from fallow.core.contract import Contract
from fallow.core.refusal import Halted
from fallow.core.types import SiteId, Tree
from fallow.deployment.agreement import Agreement
from fallow.experiment.journal import Journal
from fallow.privacy.settings import SMALLEST
from fallow.transport.remote import AGAIN, BEFORE, find_step

# keys in the event log
ABSENT = "absent"  # sites left out of one round or query
LEFT = "left"  # sites removed from the study
REVOKED = "revoked"  # sites whose keys were revoked during a step
HELLO = "0/hello"
SCALING = ("/cells", "/encoder", "/encode", "/features", "/targets", "/tuned")
"""Suffixes of the keys of exchanges that every site must take part in."""
PEOPLE = ("ask", "close")
"""Suffixes of the keys at the start and the end of labeling."""
APART = (*PEOPLE, "score", "encoder", "encode", "features", "best", "last")
"""Suffixes of the keys of further requests in a round or step, beside its algorithm."""
FINISH = "model/finish"


@dataclass(frozen=True)
class Absence:
    """A site left out of one round or query.

    ``key`` identifies the round or query, for example ``0/train/3``. ``at`` is the time of the
    decision as ISO text.
    """

    site: SiteId
    key: str
    at: str


def load_absences(journal: Journal) -> list[Absence]:
    """Return the sites left out of rounds and queries of a run, oldest first."""
    return [Absence(**line) for line in json.loads(journal.read_note(ABSENT) or "[]")]


@dataclass(frozen=True)
class Revocation:
    """Revoked keys of a site.

    ``at`` is the time as ISO text. ``step`` is the step that was open then, such as ``0/query``. The
    site is asked nothing more in this step, and belongs to no later one.
    """

    at: str
    step: str


def load_left(journal: Journal) -> dict[SiteId, str]:
    """Return the sites removed from the study and the time of removal as ISO text."""
    left: dict[SiteId, str] = json.loads(journal.read_note(LEFT) or "{}")
    for site, revocation in load_revocations(journal).items():
        if journal.load_step(revocation.step) is not None:
            left[site] = revocation.at
    return left


def load_revocations(journal: Journal) -> dict[SiteId, Revocation]:
    """Return the sites whose keys were revoked during a step."""
    lines = json.loads(journal.read_note(REVOKED) or "{}")
    return {site: Revocation(**line) for site, line in lines.items()}


def find_absent(journal: Journal, key: str) -> set[SiteId]:
    """Return the sites that are left out of a round or query."""
    return {absence.site for absence in load_absences(journal) if absence.key == key}


def describe_absence(absence: Absence) -> str:
    """Describe an absence in the notification to a site."""
    return (
        f"the coordinator proceeds without this site in {describe_key(absence.key)}, "
        "because a reply did not arrive in time: this site's reply is not used"
    )


def describe_key(key: str) -> str:
    """Describe a round or query in words.

    >>> describe_key("0/train/3"), describe_key("1/query"), describe_key("0/initial/close")
    ('round 4 of cycle 0', 'the query of cycle 1', 'the end of the first labels')
    """
    last = key.rpartition("/")[2]
    if last in PEOPLE:
        step = describe_key(find_step(key))
        if last == "ask":
            return f"creating labeling tasks in {step}"
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
        return "the initial labeled set"
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
    """Leave sites out of the round or query that the exchange ``key`` belongs to.

    ``contracts`` are those of the study's algorithms, by role. Raises ValueError if an algorithm
    needs the sites.
    """
    position = _find_place(key)
    _check_place(journal, agreement, contracts, position, sites)
    absences = [*load_absences(journal), *(Absence(site, position, at) for site in sites)]
    with journal.transaction():
        journal.note(ABSENT, json.dumps([asdict(absence) for absence in absences]))
        of_place = [name for name in journal.exchanges() if name.startswith(f"{position}/")]
        journal.take_back(of_place)
        ask_anew(journal, find_step(position))


def _find_place(key: str) -> str:
    """Return the round or query that an exchange belongs to.

    This is the key without the exchange number, the relay leg and the attempt number.
    """
    parts = key.partition("~")[0].split("/")
    if parts[-1] == "deliver":
        parts = parts[:-1]
    size = 2  # a step such as "1/query"
    if len(parts) > 1 and parts[1] == "train":
        size = 3  # a round such as "1/train/3"
    if parts[size : size + 1] and parts[size] in APART:
        size += 1
    return "/".join(parts[:size])


def _check_place(
    journal: Journal,
    agreement: Agreement,
    contracts: Mapping[str, Contract],
    position: str,
    sites: Sequence[SiteId],
) -> None:
    """Raise ValueError unless a round or query can proceed without the sites."""
    last = position.rpartition("/")[2]
    if position == FINISH or last in PEOPLE:
        return  # the labels of an absent site count at the next query
    owner = contracts["query"]
    needs_all = owner.everyone
    if find_step(position).endswith("/train"):
        owner = contracts["training"]
        needs_all = owner.everyone or bool(owner.relay)
    if needs_all:
        raise ValueError(
            f"{owner.title} needs every site in every round, so no reply can be left out"
        )
    removed = {*find_absent(journal, position), *load_left(journal), *sites}
    stay = len(agreement.sites) - len(removed)
    if stay < owner.cohort:
        raise ValueError(
            f"{owner.title} needs {owner.cohort} sites in {describe_key(position)}, "
            f"but only {stay} would be left"
        )


def ask_anew(journal: Journal, step: str) -> None:
    """Repeat a step under keys that no site has seen."""
    name = f"{AGAIN}{step}"
    journal.note(name, str(int(journal.read_note(name) or 0) + 1))


# -- discarding the exchange that stopped the server side ----------------------------------


def take_back_last(journal: Journal) -> str | None:
    """Discard the last recorded exchange because the server side failed on its content.

    Returns its key, or None if there is none. The exchange is repeated under a new key.
    """
    recorded = journal.exchanges()
    if not recorded or find_step(recorded[-1]) == HELLO:
        return None
    key = recorded[-1]
    with journal.transaction():
        journal.take_back([key])
        ask_anew(journal, find_step(key))
        before: Tree = json.loads(journal.read_note(BEFORE) or "{}")
        # discard the effects of that exchange at the sites as well
        if before.get("key") == key:
            for site, counted in before["counted"].items():
                journal.note(f"counted/{site}", counted)
    return key


# -- removing sites from a study ------------------------------------------------------------


def is_of_all(key: str) -> bool:
    """Return whether an exchange requires every site of the study."""
    return key.partition("~")[0].rpartition("/")[0].endswith(SCALING)


def can_advance(agreement: Agreement, key: str, absent: Iterable[SiteId]) -> bool:
    """Return whether a run can proceed without the pending sites of an exchange.

    A study starts with all sites. Masked exchanges restart automatically.
    """
    if find_step(key) == HELLO or agreement.recipe.privacy.secure_sum:
        return False
    return explain_too_few(agreement, absent) is None


def explain_too_few(agreement: Agreement, absent: Iterable[SiteId]) -> str | None:
    """Explain why a study cannot proceed without some sites, or return None if it can."""
    stay = len(agreement.sites) - len(set(absent))
    least = agreement.waits.quorum or 1
    if agreement.recipe.privacy.secure_sum:
        least = max(least, SMALLEST)
    if stay >= least:
        return None
    return (
        f"{stay} of {len(agreement.sites)} sites would be left, but the study needs "
        f"{least} (the quorum in study.toml, and 3 for secure aggregation)"
    )


def revoke(
    journal: Journal,
    agreement: Agreement,
    contracts: Mapping[str, Contract],
    *,
    sites: Sequence[SiteId],
    key: str,
    at: str,
) -> None:
    """Remove sites from the study because their keys were revoked.

    The open step, in which ``key`` is the exchange in progress, is repeated without them. It is
    continued without them if it cannot be repeated: with secure aggregation, and after labeling
    tasks were created.

    Raises Halted if the study cannot proceed without the sites.
    """
    names = ", ".join(sites)
    if find_step(key) == HELLO:
        raise Halted(
            f"the keys of {names} were revoked, and a study starts with all its "
            "sites: admit new keys with --replace, or agree on a new study without "
            "it"
        )
    absent = {*load_left(journal), *load_revocations(journal), *sites}
    too_few = explain_too_few(agreement, absent)
    if too_few is not None:
        raise Halted(f"the keys of {names} were revoked: {too_few}")
    for contract in contracts.values():
        if contract.everyone:
            raise Halted(
                f"the keys of {names} were revoked, and {contract.title} needs every "
                "site: start another study without it, in which the labels of the "
                "other sites can be used"
            )
    step = find_step(key)
    has_tasks = any(name.startswith(f"{step}/ask/") for name in journal.exchanges())
    if has_tasks or agreement.recipe.privacy.secure_sum:
        revoked = load_revocations(journal) | dict.fromkeys(sites, Revocation(at, step))
        lines = {site: asdict(revocation) for site, revocation in revoked.items()}
        with journal.transaction():
            journal.note(REVOKED, json.dumps(lines))
    else:
        leave(journal, sites, at, key)


def leave(journal: Journal, sites: Iterable[SiteId], at: str, key: str) -> None:
    """Remove sites from the rest of the study.

    The open step, in which the exchange ``key`` waited for them, is repeated.
    """
    with journal.transaction():
        journal.note(LEFT, json.dumps(load_left(journal) | dict.fromkeys(sites, at)))
        recorded = journal.exchanges()
        journal.take_back(recorded)
        for step in sorted({find_step(name) for name in [key, *recorded]}):
            ask_anew(journal, step)
