"""Label budgets, and their allocation to the sites."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, get_args

from fallow.core.limits import Limits
from fallow.core.wording import count_noun

if TYPE_CHECKING:
    from fallow.core.types import SiteId

LabelBudget = float | int
"""Labels to acquire: a fraction (float) of all examples, or a number (int) at each site."""

BudgetAllocation = Literal["equal", "equal_rounded", "proportional"]
ALLOCATIONS: tuple[BudgetAllocation, ...] = get_args(BudgetAllocation)

FORMS = (
    "a fraction of all examples with a decimal point (0.05), or a whole number of labels at "
    "each site (20)"
)


def allocate_budget(
    budget: LabelBudget, allocation: str, sizes: Mapping[SiteId, int]
) -> dict[SiteId, int]:
    """Return the number of labels of each site.

    Parameters
    ----------
    budget : float or int
        Fraction of all examples, or (int) number of labels at each site.
    allocation : {"equal", "equal_rounded", "proportional"}
        Budget allocation of a fraction.  "equal": ceil(q |D| / N) for each site (AHFAL).
        "equal_rounded": the same, with |D| rounded to hundreds and the result rounded down (LoGo,
        FairFAL, IFAL).  "proportional": ceil(q |D_i|) (KAFAL).
    sizes : mapping of str to int
        Number of examples of each site.

    >>> allocate_budget(0.05, "equal_rounded", {str(i): 7326 for i in range(10)})["0"]
    366
    """
    if isinstance(budget, int):
        return dict.fromkeys(sizes, budget)
    everything = sum(sizes.values())
    if allocation == "equal":
        return dict.fromkeys(sizes, math.ceil(budget * everything / len(sizes) - 1e-9))
    if allocation == "equal_rounded":
        return dict.fromkeys(sizes, int(round(everything, -2) * budget / len(sizes) + 1e-9))
    return {site: math.ceil(budget * n - 1e-9) for site, n in sizes.items()}


def describe_budget(budget: LabelBudget) -> str:
    """Describe a label budget.

    >>> describe_budget(1), describe_budget(1.0)
    ('1 label at each site', '100 % of all examples')
    """
    if isinstance(budget, int):
        return f"{count_noun(budget, 'label')} at each site"
    return f"{100 * budget:g} % of all examples"


def describe_reading(initial: LabelBudget, later: Sequence[LabelBudget]) -> str:
    """Describe how a budget of 1 is read, unless another one shows that labels are counted.

    Parameters
    ----------
    initial : float or int
        Size of the initial labeled set.
    later : sequence of float or int
        Label budgets of the cycles.

    >>> describe_reading(0.1, [1])
    'budget=1 is 1 label at each site; write 1.0 for all examples'
    >>> describe_reading(0.1, [1.0]), describe_reading(10, [1])
    ('', '')
    """
    numbers = [budget for budget in (initial, *later) if isinstance(budget, int)]
    if 1 not in numbers or max(numbers) > 1:
        return ""
    name = "budget"
    if 1 not in later:
        name = "initial"
    return f"{name}=1 is {describe_budget(1)}; write 1.0 for all examples"


def check_budget_kind(name: str, value: object) -> None:
    """Raise ValueError unless the value is a number, or a list of numbers for ``budget``."""
    items: Sequence[object] = (value,)
    several = ""
    if name == "budget":
        several = "; or a list of these, one for each cycle"
        if isinstance(value, list | tuple):
            items = value
    if value in ALLOCATIONS:  # as a text
        several += f"; to allocate it so, set budget_allocation={value!r}"
    for item in items:
        if isinstance(item, bool) or not isinstance(item, int | float):
            raise ValueError(f"{name} is {value!r}; it must be {FORMS}{several}")


def check_budget(name: str, value: LabelBudget, *, may_be_zero: bool) -> None:
    """Raise ValueError for a number that is negative, or a fraction above 1."""
    limits = Limits(gt=0, advice=f": {FORMS}")
    if may_be_zero:
        limits = Limits(ge=0, advice=f": {FORMS}")
    why = limits.find_fault(name, value)
    if isinstance(value, float) and value > 1:
        why = f"{name} is {value}, more than all examples; write {FORMS}"
    if why is not None:
        raise ValueError(why)
