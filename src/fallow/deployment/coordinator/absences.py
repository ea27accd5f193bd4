"""Absent sites: left out of one round or query, or removed from the study.

Absences are recorded in the event log and survive a restart. Results of the open round or query are
discarded and requested again from the other sites under new keys (`RemoteChannel.wire_key`),
because a key must have a single meaning at a site.

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
from fallow.core.exchange_key import IN_ROUND, STEPS, ExchangeKey, StepName, read_key
from fallow.core.refusal import RunHalted
from fallow.core.types import SiteId, Tree
from fallow.deployment.agreement import Agreement
from fallow.experiment.event_log import EventLog
from fallow.privacy.settings import SMALLEST
from fallow.transport.remote import AGAIN, BEFORE

# keys in the event log
ABSENT = "absent"  # sites left out of one round or query
LEFT = "left"  # sites removed from the study
REVOKED = "revoked"  # sites whose keys were revoked during a step
OF_ALL: tuple[StepName, ...] = (
    "cells",
    "encoder",
    "encode",
    "features",
    "targets",
    "tune",
)
"""Steps that every site must take part in."""
LABELING_STEPS: tuple[StepName, ...] = ("ask", "close")
"""Steps at the start and the end of labeling."""


@dataclass(frozen=True)
class Absence:
    """A site left out of one round or query.

    ``key`` is the first exchange of the round or query. ``at`` is the time of the decision as ISO
    text.
    """

    site: SiteId
    key: ExchangeKey
    at: str


def load_absences(event_log: EventLog) -> list[Absence]:
    """Return the sites left out of rounds and queries of a run, oldest first."""
    lines = json.loads(event_log.read_note(ABSENT) or "[]")
    return [Absence(line["site"], read_key(line["key"]), line["at"]) for line in lines]


@dataclass(frozen=True)
class Revocation:
    """Revoked keys of a site.

    ``at`` is the time as ISO text. ``step`` is the step that was open then, such as
    ``0/query``. The site gets no further instructions in this step, and does not take part in
    later ones.
    """

    at: str
    step: str


def load_left(event_log: EventLog) -> dict[SiteId, str]:
    """Return the sites removed from the study and the time of removal as ISO text."""
    left: dict[SiteId, str] = json.loads(event_log.read_note(LEFT) or "{}")
    for site, revocation in load_revocations(event_log).items():
        if event_log.load_step(revocation.step) is not None:
            left[site] = revocation.at
    return left


def load_revocations(event_log: EventLog) -> dict[SiteId, Revocation]:
    """Return the sites whose keys were revoked during a step."""
    lines = json.loads(event_log.read_note(REVOKED) or "{}")
    return {site: Revocation(**line) for site, line in lines.items()}


def find_absent(event_log: EventLog, key: ExchangeKey) -> set[SiteId]:
    """Return the sites that are left out of a round or query."""
    return {absence.site for absence in load_absences(event_log) if absence.key == key}


def describe_key(key: ExchangeKey) -> str:
    """Describe a round or query in words.

    >>> describe_key(ExchangeKey("train", "round", round=3))
    'round 4 of cycle 0'
    >>> describe_key(ExchangeKey("query", "query", cycle=1))
    'the query of cycle 1'
    >>> describe_key(ExchangeKey("initial", "close"))
    'the end of the initial labeled set'
    """
    match key.step:
        case "ask":
            return f"creating labeling tasks in {describe_key(key.main)}"
        case "close":
            return f"the end of {describe_key(key.main)}"
        case "score":
            return f"the scores of {describe_key(key.main)}"
        case "round":
            return f"round {key.round + 1} of cycle {key.cycle}"
        case "query" | "draw" if key.part:
            return f"the query of cycle {key.cycle} (part {key.part + 1})"
        case "query" | "draw":
            return f"the query of cycle {key.cycle}"
        case "tally":
            return f"the evaluation set of cycle {key.cycle}"
        case "tune":
            return "the choice of the encoder's parameter"
        case "initial":
            return "the initial labeled set"
    return key.step_name


# -- one round or query -------------------------------------------------------------------------


def leave_out(
    event_log: EventLog,
    agreement: Agreement,
    contracts: Mapping[str, Contract],
    *,
    sites: Sequence[SiteId],
    key: ExchangeKey,
    at: str,
) -> None:
    """Leave sites out of the round or query that the exchange ``key`` belongs to.

    ``contracts`` are those of the study's algorithms, by role. Raises ValueError if an algorithm
    needs the sites.
    """
    position = _find_place(key)
    _check_place(event_log, agreement, contracts, position, sites)
    absences = [*load_absences(event_log), *(Absence(site, position, at) for site in sites)]
    with event_log.transaction():
        event_log.note(ABSENT, json.dumps([asdict(absence) for absence in absences]))
        of_place = [name for name in event_log.exchanges() if _is_within(name, position)]
        event_log.take_back(of_place)
        repeat_instruction(event_log, position.phase_name)


def _find_place(key: ExchangeKey) -> ExchangeKey:
    """Return the first exchange of the round, query or step that sites are left out of.

    Examples of the evaluation set are drawn by the sites of the query.
    """
    if key.step == "draw":
        return key.main
    return key.first


def _is_within(key: ExchangeKey, position: ExchangeKey) -> bool:
    """Return whether an exchange is repeated together with a round, query or step."""
    if key.phase_name != position.phase_name:
        return False
    if position.step == "round":
        return key.step in IN_ROUND and key.round == position.round
    is_main = position.step == STEPS[position.phase][0]
    return is_main or key.first == position


def _check_place(
    event_log: EventLog,
    agreement: Agreement,
    contracts: Mapping[str, Contract],
    position: ExchangeKey,
    sites: Sequence[SiteId],
) -> None:
    """Raise ValueError unless a round or query can proceed without the sites."""
    if position.phase == "finish" or position.step in LABELING_STEPS:
        return  # the labels of an absent site count at the next query
    owner = contracts["query"]
    needs_all = owner.everyone
    if position.phase == "train":
        owner = contracts["training"]
        is_relaying = any(item.operation == "relay" for item in owner.functions)
        needs_all = owner.everyone or is_relaying
    if needs_all:
        raise ValueError(
            f"{owner.title} needs every site in every round, so no reply can be left out"
        )
    removed = {*find_absent(event_log, position), *load_left(event_log), *sites}
    stay = len(agreement.sites) - len(removed)
    if stay < owner.cohort:
        raise ValueError(
            f"{owner.title} needs {owner.cohort} sites in {describe_key(position)}, "
            f"but only {stay} would be left"
        )


def repeat_instruction(event_log: EventLog, phase: str) -> None:
    """Repeat a phase such as ``0/train`` under keys that no site has seen."""
    name = f"{AGAIN}{phase}"
    event_log.note(name, str(int(event_log.read_note(name) or 0) + 1))


# -- discarding the exchange that stopped the server side ----------------------------------


def discard_last_reply(event_log: EventLog) -> ExchangeKey | None:
    """Discard the last recorded exchange because the server side failed on its content.

    Returns its key, or None if there is none. The exchange is repeated under a new key.
    """
    recorded = event_log.exchanges()
    if not recorded or recorded[-1].phase == "hello":
        return None
    key = recorded[-1]
    with event_log.transaction():
        event_log.take_back([key])
        repeat_instruction(event_log, key.phase_name)
        before: Tree = json.loads(event_log.read_note(BEFORE) or "{}")
        # discard the effects of that exchange at the sites as well
        if before.get("key") == str(key):
            for site, counted in before["counted"].items():
                event_log.note(f"counted/{site}", counted)
    return key


# -- removing sites from a study ------------------------------------------------------------


def is_of_all(key: ExchangeKey) -> bool:
    """Return whether an exchange requires every site of the study."""
    return key.step in OF_ALL


def can_advance(agreement: Agreement, key: ExchangeKey, absent: Iterable[SiteId]) -> bool:
    """Return whether a run can proceed without the pending sites of an exchange.

    A study starts with all sites. Masked exchanges restart automatically.
    """
    if key.phase == "hello" or agreement.config.privacy.secure_sum:
        return False
    return explain_too_few(agreement, absent) is None


def explain_too_few(agreement: Agreement, absent: Iterable[SiteId]) -> str | None:
    """Explain why a study cannot proceed without some sites, or return None if it can."""
    stay = len(agreement.sites) - len(set(absent))
    least = agreement.waits.quorum or 1
    if agreement.config.privacy.secure_sum:
        least = max(least, SMALLEST)
    if stay >= least:
        return None
    return (
        f"{stay} of {len(agreement.sites)} sites would be left, but the study needs "
        f"{least} (the quorum in study.toml, and 3 for secure aggregation)"
    )


def revoke(
    event_log: EventLog,
    agreement: Agreement,
    contracts: Mapping[str, Contract],
    *,
    sites: Sequence[SiteId],
    key: ExchangeKey,
    at: str,
) -> None:
    """Remove sites from the study because their keys were revoked.

    The open step, in which ``key`` is the exchange in progress, is repeated without them. It is
    continued without them if it cannot be repeated: with secure aggregation, and after labeling
    tasks were created.

    Raises RunHalted if the study cannot proceed without the sites.
    """
    names = ", ".join(sites)
    if key.phase == "hello":
        raise RunHalted(
            f"the keys of {names} were revoked, and a study starts with all its "
            "sites: admit new keys with --replace, or agree on a new study without "
            "it"
        )
    absent = {*load_left(event_log), *load_revocations(event_log), *sites}
    too_few = explain_too_few(agreement, absent)
    if too_few is not None:
        raise RunHalted(f"the keys of {names} were revoked: {too_few}")
    for contract in contracts.values():
        if contract.everyone:
            raise RunHalted(
                f"the keys of {names} were revoked, and {contract.title} needs every "
                "site: start another study without it, in which the labels of the "
                "other sites can be used"
            )
    step = key.phase_name
    has_tasks = any(
        name.step == "ask" and name.phase_name == step for name in event_log.exchanges()
    )
    if has_tasks or agreement.config.privacy.secure_sum:
        revoked = load_revocations(event_log) | dict.fromkeys(sites, Revocation(at, step))
        lines = {site: asdict(revocation) for site, revocation in revoked.items()}
        with event_log.transaction():
            event_log.note(REVOKED, json.dumps(lines))
    else:
        leave(event_log, sites, at, key)


def leave(event_log: EventLog, sites: Iterable[SiteId], at: str, key: ExchangeKey) -> None:
    """Remove sites from the rest of the study.

    The open step, in which the exchange ``key`` waited for them, is repeated.
    """
    with event_log.transaction():
        event_log.note(LEFT, json.dumps(load_left(event_log) | dict.fromkeys(sites, at)))
        recorded = event_log.exchanges()
        event_log.take_back(recorded)
        for phase in sorted({name.phase_name for name in [key, *recorded]}):
            repeat_instruction(event_log, phase)
