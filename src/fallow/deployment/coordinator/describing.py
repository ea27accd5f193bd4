"""Description of the data of real sites, once per run and before the study."""

from __future__ import annotations

from pathlib import Path

from fallow.core.ask import Ask
from fallow.core.disclosure import Disclosure
from fallow.deployment.agreement import Agreement
from fallow.deployment.coordinator.sites import HELLO, RemoteEnvironment
from fallow.measurements.description import DESCRIBE, FILE
from fallow.storage.errors import StorageError
from fallow.storage.files import write_json


def explain_no_description(agreement: Agreement) -> str | None:
    """Explain why the data of a study cannot be described, or return None."""
    if agreement.config.privacy.epsilon is None:
        return None
    return (
        "the study adds noise to counts (privacy.epsilon), and a description would send exact "
        "ones; describe the data in a study without noise"
    )


def describe_sites(sites: RemoteEnvironment, folder: Path) -> None:
    """Write the description of the data of all sites into the coordinator's folder.

    Raises StorageError if the study has begun, or adds noise to counts.
    """
    event_log = sites.event_log
    done = event_log.load_step(DESCRIBE.phase_name)
    if done is None:
        why = explain_no_description(sites.agreement)
        first = {HELLO.phase, DESCRIBE.phase}
        is_later = any(key.phase not in first for key in event_log.exchanges())
        if is_later or set(event_log.steps()) > {HELLO.phase_name}:
            why = (
                "the study has begun, and data can be described only before: describe them in a "
                "new folder"
            )
        if why is not None:
            raise StorageError(why)  # nothing that was recorded is discarded
        shown = Disclosure()
        method = sites.methods["describe"]
        ask = Ask(
            channel=sites.channel,
            event_log=event_log,
            disclosure=shown,
            key=DESCRIBE,
            owner=DESCRIBE.step,
            reveals=method.contract.disclosures,
            masking=sites.masking,
        )
        facts = method.describe(ask)
        done = event_log.finish(
            DESCRIBE.phase_name, {"facts": dict(facts), "revealed": shown.rows()}
        )
    write_json(folder / FILE, done["facts"])
