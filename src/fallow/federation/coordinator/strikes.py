"""What the coordinator goes on without: an answer that was struck out, a site that left the study.

Both are notes in the journal, so they hold after any restart.  To go on without an answer the run
goes back to the round or query in which it counted: what was recorded since is dropped, and asked
again of the other sites under new keys (`Remote.wire_key`), because at a site one key never means
two things.

Notes
-----
Sites remember what they did since, such as a personal model or batch-norm statistics of their own;
a round that is repeated goes on from there.  What travels with an order is as it was before.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass

from fallow.core.contract import Contract
from fallow.core.types import SiteId, Tree
from fallow.experiment.journal import Journal
from fallow.federation.agreement import Agreement
from fallow.network.remote import AGAIN, BEFORE, find_step
from fallow.privacy.settings import SMALLEST

# what the journal notes
STRUCK = "struck"  # answers that were struck out
LEFT = "left"  # sites that left
STOPPED = "stopped at"  # where the run stood when it ended with an error
HELLO = "0/hello"
SCALING = ("/cells", "/encoder", "/encode", "/features", "/targets", "/tuned")
"""The ends of the keys of what all sites must take part in to take part in anything."""
PEOPLE = ("ask", "close")
"""The ends of the keys of a step in which people are asked, and in which that is over."""
APART = (*PEOPLE, "score", "encoder", "encode", "features", "best", "last")
"""The ends of keys under which more is asked in a round or step than by its method."""
FINISH = "model/finish"


@dataclass(frozen=True)
class Strike:
    """The answers of ``site`` in one round or query, by its key such as ``0/train/3``, do not
    count; ``at``: when that was decided, as ISO text."""

    site: SiteId
    key: str
    at: str


def load_strikes(journal: Journal) -> list[Strike]:
    """All that was struck out in a run, oldest first."""
    return [Strike(**line) for line in json.loads(journal.read_note(STRUCK) or "[]")]


def load_left(journal: Journal) -> dict[SiteId, str]:
    """The sites that the study goes on without, and since when, as ISO text."""
    found: dict[SiteId, str] = json.loads(journal.read_note(LEFT) or "{}")
    return found


def find_absent(journal: Journal, key: str) -> set[SiteId]:
    """The sites that a round or query goes on without."""
    return {strike.site for strike in load_strikes(journal) if strike.key == key}


def describe_strike(strike: Strike) -> str:
    """What a site is told."""
    return (
        "the coordinator goes on without what this site answered, or did not answer, in "
        f"{describe_key(strike.key)}: it does not count; ask the coordinator why"
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


def parse_round(text: str) -> str:
    """The key of a round that is given as CYCLE/ROUND, as `coordinate status` counts them.

    >>> parse_round("1/4")
    '1/train/3'
    """
    cycle, _, number = text.partition("/")
    if not (cycle.isdecimal() and number.isdecimal() and int(number) > 0):
        raise ValueError(
            f"{text!r} is no round: give the cycle and the round as 'coordinate status' shows "
            "them, such as 1/4"
        )
    return f"{int(cycle)}/train/{int(number) - 1}"


# -- striking an answer out -------------------------------------------------------------------


def strike(
    journal: Journal,
    agreement: Agreement,
    contracts: Mapping[str, Contract],
    *,
    site: SiteId,
    key: str | None,
    at: str,
) -> Strike:
    """Strike out what a site answered in a round or query, and let the run go back to it.

    key: of the round or query, or of an exchange in it; None: of where the run stopped with an
    error.  contracts: of the study's methods, by the part that they play.  Raises ValueError, in a
    sentence, for what cannot be struck out.
    """
    _check_site(journal, agreement, site)
    key = key or journal.read_note(STOPPED)
    if key is None:
        raise ValueError(
            "the run did not stop with an error, so say which answer: --round CYCLE/ROUND, or "
            "--exchange with a key that 'coordinate start' has shown"
        )
    place = _find_place(key)
    if site in find_absent(journal, place):
        raise ValueError(f"{site} is struck out of {describe_key(place)} already")
    _check_place(journal, agreement, contracts, place)
    found = Strike(site, place, at)
    with journal.transaction():
        strikes = [*load_strikes(journal), found]
        journal.note(STRUCK, json.dumps([asdict(each) for each in strikes]))
        _go_back(journal, place)
    return found


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


def _check_site(journal: Journal, agreement: Agreement, site: SiteId) -> None:
    if site not in agreement.sites:
        raise ValueError(
            f"{site!r} is no site of this study; it has {', '.join(agreement.sites)}"
        )
    if site in load_left(journal):
        raise ValueError(f"the study goes on without {site} already")
    if agreement.recipe.privacy.secure_sum:
        raise ValueError(
            "with secure sums the coordinator sees totals alone, and cannot take one site's part "
            "out of them: agree on a study without that site, and begin it in a new folder"
        )


def _check_place(
    journal: Journal, agreement: Agreement, contracts: Mapping[str, Contract], place: str
) -> None:
    """Raise ValueError unless the run can go back to a round or query."""
    step = find_step(place)
    finished = journal.steps()
    recorded = journal.exchanges()
    if step == HELLO:
        raise ValueError("a study begins with all its sites, and that is not taken back")
    if place == FINISH and "model" not in finished and not is_recorded(recorded, place):
        return
    if "model" in finished or any(key.startswith("model/") for key in recorded):
        raise ValueError("the study is finished, and its model was handed to the sites")
    cycle, _, what = step.partition("/")
    if place.endswith(SCALING):
        raise ValueError(
            f"{place} is where all sites agree on units, without which none can take part: begin "
            "the study anew without that site"
        )
    if place.endswith(tuple(f"/{name}" for name in PEOPLE)):
        if step in finished or is_recorded(recorded, place):
            raise ValueError(f"{describe_key(place)} is over")
        return  # nothing rests on it yet: the site's labels enter when it is asked next
    if what == "train" and _has_bought(journal, cycle):
        raise ValueError(
            f"{describe_key(place)} is over: rows were chosen by its model, and their labels are "
            "being bought or were"
        )
    if what != "train" and (step in finished or _is_asked(recorded, step)):
        raise ValueError(
            f"{describe_key(place)} is over: its rows were shown to people, and labels are being "
            "bought or were"
        )
    if what == "train":
        owner = contracts["training"]
        needs_all = owner.everyone or bool(owner.relay)
    else:
        owner = contracts["query"]
        needs_all = owner.everyone
    if needs_all:
        raise ValueError(
            f"{owner.title} needs every site in every round, so that no answer can be left out"
        )
    stay = (
        len(agreement.sites)
        - len(find_absent(journal, place))
        - len(load_left(journal))
        - 1
    )
    if stay < owner.cohort:
        raise ValueError(
            f"{stay} sites would be left in {describe_key(place)}, and {owner.title} needs "
            f"{owner.cohort}"
        )
    is_open = is_recorded(recorded, place) or bool(find_absent(journal, place))
    is_stop = _find_place(journal.read_note(STOPPED) or "") == place
    if not (is_open or is_stop or (step in finished and _is_round(place, agreement))):
        raise ValueError(f"the run has not come to {describe_key(place)} yet")


def is_recorded(recorded: Iterable[str], place: str) -> bool:
    """Whether sites have answered anything in a round or query."""
    return any(key.startswith(f"{place}/") for key in recorded)


def _is_round(place: str, agreement: Agreement) -> bool:
    number = place.split("/")[2]
    return number.isdecimal() and int(number) < agreement.recipe.rounds


def _is_asked(recorded: Iterable[str], step: str) -> bool:
    """Whether people were asked for what a query has picked."""
    return any(f"{key}/".startswith(f"{step}/ask/") for key in recorded)


def _has_bought(journal: Journal, cycle: str) -> bool:
    """Whether labels were asked for after the training of a cycle."""
    query = f"{cycle}/query"
    later = any(step.startswith(query) for step in journal.steps())
    return later or _is_asked(journal.exchanges(), query)


def _go_back(journal: Journal, place: str) -> None:
    """Forget a round or query, and what was recorded after it; new keys for what is asked now."""
    step = find_step(place)
    recorded = journal.exchanges()
    of_place = [i for i, key in enumerate(recorded) if key.startswith(f"{place}/")]
    dropped: list[str] = []
    if step in journal.steps():  # its exchanges are gone: all of its rounds are repeated
        dropped = recorded
    elif of_place:
        dropped = recorded[of_place[0] :]
    journal.take_back(dropped, [step])
    anew = {step, *map(find_step, dropped), find_step(journal.read_note(STOPPED) or step)}
    cycle, _, what = step.partition("/")
    if what == "train":  # sites may have been asked for more than was recorded
        anew |= {f"{cycle}/query", "model/finish"}
    for name in sorted(anew):
        ask_anew(journal, name)


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
        journal.take_back([key], [])
        ask_anew(journal, find_step(key))
        before: Tree = json.loads(journal.read_note(BEFORE) or "{}")
        if before.get("key") == key:  # what sites did in it does not count either
            for site, counted in before["counted"].items():
                journal.note(f"counted/{site}", counted)
    return key


def note_stop(journal: Journal, key: str) -> None:
    """Remember where a run ended with an error, so that a strike can do without a key."""
    with journal.transaction():
        journal.note(STOPPED, key)


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
        journal.take_back(recorded, [])
        for step in sorted({find_step(name) for name in [key, *recorded]}):
            ask_anew(journal, step)
