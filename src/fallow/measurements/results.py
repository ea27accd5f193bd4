"""Results of measurements, as records of a run store them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, with_config
from typing_extensions import TypedDict

from fallow.core.wording import count_noun
from fallow.storage.validation import STRICT, Count, Number


@with_config(STRICT)
class AttackResult(TypedDict):
    """Result of one attack on the sums or on the model of a run."""

    attack: Annotated[str, Field(description="what the attacker sees")]
    rows: Annotated[Count, Field(description="examples in it")]
    numbers: Annotated[Count, Field(description="numbers that the attacker sees")]
    unknowns: Annotated[Count, Field(description="values of these examples")]
    read: Annotated[
        Count,
        Field(
            description="examples read: each column within 0.02 standard deviations of the truth"
        ),
    ]
    near: Annotated[
        Count,
        Field(
            description="examples whose error is below a quarter of the distance to other examples"
        ),
    ]
    error: Annotated[
        Number | None,
        Field(description="largest error of a read example, in standard deviations"),
    ]
    seconds: Annotated[Number, Field(description="CPU time in seconds")]


def describe_attack(attack: AttackResult) -> str:
    """Describe what an attack has read, in one sentence.

    >>> attack: AttackResult = {
    ...     "attack": "model alone",
    ...     "rows": 12,
    ...     "numbers": 9,
    ...     "unknowns": 156,
    ...     "read": 0,
    ...     "near": 0,
    ...     "error": None,
    ...     "seconds": 2.0,
    ... }
    >>> describe_attack(attack)
    'model alone: 0 of 12 examples read, in 2.0 CPU seconds (9 numbers about 156 values)'
    """
    success = f"{attack['read']} of {count_noun(attack['rows'], 'example')} read"
    if attack["error"] is not None:
        success += f" within {attack['error']:.1g} standard deviations"
    if attack["near"] > attack["read"]:
        success += f", {attack['near'] - attack['read']} more nearly"
    return (
        f"{attack['attack']}: {success}, in {attack['seconds']:.1f} CPU seconds "
        f"({attack['numbers']:,} numbers about {attack['unknowns']:,} values)"
    )
