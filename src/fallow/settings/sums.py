"""Sentences about what sums of examples reveal, which all texts about a study repeat."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from fallow.privacy.settings import Sums
from fallow.settings.config import ExperimentConfig, contract_of_training

Promise = Literal["exact", "noisy", "gradient"]
PROMISES: Mapping[Promise, str] = {
    "exact": "the coordinator, and everyone who receives the model, can compute rows from what is "
    "sent, labeled or not; for tables this takes seconds",
    "noisy": "(epsilon, delta)-differential privacy, as stated; the only protection of rows against "
    "the coordinator",
    "gradient": "no guarantee; published attacks read single rows from updates and models, and exact "
    "sums beside them can be rows",
}
"""Statements about rows, by how sums are sent, and for models trained by gradient steps."""
IS_MASKED = (
    "secure aggregation hides the contribution of a site to one sum, also with wrong values, not the "
    "number of its labels or what it alone adds between two sums"
)
IS_NOT_MASKED = "without secure aggregation, the coordinator sees the sums of each site"
COUNTS = "noise covers only the counts that the query strategy sends"
NOT_COVERED = (
    "scores of test rows are exact, and in a simulation sums over all rows (scaling, empty cells, "
    "encoders) too, which real sites refuse"
)


def find_promise(config: ExperimentConfig) -> Promise:
    """Return the kind of statement that holds for a study.

    >>> from fallow.settings.spec import Spec
    >>> find_promise(ExperimentConfig("a", training=Spec("closed-form")))
    'exact'
    >>> find_promise(ExperimentConfig("a", training=Spec("fedavg")))
    'gradient'
    >>> find_promise(ExperimentConfig("a", training=Spec("none"), strategy=Spec("random")))
    'exact'
    """
    contract = contract_of_training(config.training.name)
    if contract is not None and not contract.trains:  # sums of columns and of distances
        return "exact"
    is_solved = contract is not None and contract.is_solved
    if is_solved or config.head == "exact":
        return config.privacy.stated_sums
    return "gradient"


def describe_sums(config: ExperimentConfig) -> str:
    """Return how a study sends sums, and what holds for rows.

    >>> from fallow.privacy.settings import Privacy
    >>> config = ExperimentConfig("a", privacy=Privacy(secure_sum=True))
    >>> describe_sums(config).split("; ")[-1]
    'secure aggregation hides the contribution of a site to one sum, also with wrong values, not the
    number of its labels or what it alone adds between two sums'
    """
    privacy = config.protected
    promise = find_promise(config)
    parts = [PROMISES[promise]]
    parts.append(IS_MASKED if privacy.secure_sum else IS_NOT_MASKED)
    if privacy.epsilon is not None:
        delta = "" if config.delta is None else f", delta {config.delta:g}"
        total = privacy.total or privacy.epsilon
        covered = f"epsilon {privacy.epsilon:g} per release{delta} and {total:g} in total"
        if promise == "gradient":
            parts.append(f"{COUNTS}: {covered}")
        else:
            parts += [covered, NOT_COVERED]
    return f"{privacy.stated_sums}: {'; '.join(parts)}"


def describe_choices(config: ExperimentConfig) -> list[str]:
    """Return what each choice of ``privacy.sums`` means for a study without ``privacy.epsilon``."""
    covered = f"{PROMISES['noisy']}; {NOT_COVERED}"
    if find_promise(config) == "gradient":
        covered = COUNTS
    return [describe_sums(config), f"noisy: {covered} (needs privacy.epsilon)"]


def with_sums(config: ExperimentConfig, sums: Sums) -> ExperimentConfig:
    """Return a configuration that states how sums are sent."""
    return replace(config, privacy=replace(config.privacy, sums=sums))
