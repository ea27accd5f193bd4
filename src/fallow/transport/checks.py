"""Validation of received messages before they are used.

`ResponseCheck` validates replies at the coordinator, and `find_inconsistent` compares them: the
server side processes all replies at once. A reply without the fields of the others would stop it, and
again after every restart, because an accepted reply is not requested again. `check_instruction`
validates instructions at a site.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

import torch
from torch import Tensor

from fallow.core.aggregation import are_finite
from fallow.core.client import Declaration, declared, find_fault, find_wrong_form
from fallow.core.composites import read_parts
from fallow.core.exchange_key import ExchangeKey
from fallow.core.messages import KEYS, Request, Step
from fallow.core.methods import Methods, methods_by_owner
from fallow.core.missing import Missing
from fallow.core.model_vectors import Layout
from fallow.core.refusal import Refusal, explain_errors
from fallow.core.types import SiteId, Value, Values
from fallow.core.values import (
    WHOLE,
    SenderFacts,
    describe_not_finite,
    find_unknown_type,
)
from fallow.privacy.masks import is_usable
from fallow.privacy.secure_sum import CHECK
from fallow.privacy.wide import PARTS, WIDE
from fallow.sites.site import RunComponents
from fallow.transport.wire import KEY

TOGETHER = ""
"""Place of a site's name for the aggregate of all sites."""
LongestRows = Callable[[Mapping[SiteId, int], Sequence[SiteId]], float]
"""Function of the registered rows of all sites that returns the largest sum of squared lengths of the
labeled rows of some of them."""
Received = Mapping[str, Any]
"""A reply before validation, with arbitrary content."""
# limits of a reply
KEPT = 1000  # tensors, if the site has fewer examples

# limits of a message, in bytes
LARGEST = 2**31  # the smallest limit of a transport
SPARE = 2**26  # for all data except models and rows


def bound_message(
    sizes: Mapping[str, int], sites: int, width: int, rows: int, products: int = 0
) -> int:
    """Return the largest plausible size of a message in bytes.

    It covers two float64 models for every site (peer messages), the site's rows twice (masked
    rows), feature products twice, and 64 MiB for other data. ``sizes`` are the parts of a model,
    ``sites`` the number of sites, ``width`` the features of a row, ``rows`` the rows of the site,
    and ``products`` the size of a product matrix (0 if none is sent).
    """
    numbers = sites * sum(sizes.values()) + width * rows + products
    two_of_float64 = 16
    return min(LARGEST, SPARE + two_of_float64 * numbers)


def count_products(methods: Methods, width: int) -> int:
    """Return the size of the product matrix of a closed-form algorithm, or 0 without one.

    ``width`` is the number of features in model form.
    """
    contract = methods["training"].contract
    if "least-squares" in contract.tags or "head" in methods:
        return (width + 1) ** 2
    return 0


def declared_by_owner(methods: Methods) -> dict[str, dict[str, Declaration]]:
    """Return the declarations of the client functions of a study, by owner and name."""
    return {owner: declared(method) for owner, method in methods_by_owner(methods).items()}


@final
@dataclass
class ResponseCheck:
    """Validation of the sites' replies at the coordinator.

    Parameters
    ----------
    rows
        Registered number of rows of each site, including test rows. An absent site has no entry yet.
    sizes
        Lengths of a model's ``w`` and ``stats``.
    sites, width, products
        Number of sites, features of a row, and values in a matrix of feature products if the study
        sends one. With ``sizes`` they determine the largest size of a message.
    largest
        Largest size of a message before these are known.
    labels
        Largest possible number of labels of each site: initial labels and requested labels.
    declared
        Declarations of client functions, by owner and name.
    dims
        Dimensions of declared fields.
    noted
        Numbers from earlier replies of each site, and of their aggregates, for later checks.
    is_noisy
        Whether noise is added to releases.
    longest
        Limit on the lengths of rows in products, if they are scaled so that their mean squared length
        over all sites is 1.
    missing
        Imputation of empty cells, if the study has any.
    """

    rows: dict[SiteId, int] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    sites: int = 1
    width: int = 0
    products: int = 0
    largest: int = LARGEST
    labels: dict[SiteId, int] = field(default_factory=dict)
    declared: Mapping[str, Mapping[str, Declaration]] = field(default_factory=dict)
    dims: Mapping[str, int] = field(default_factory=dict)
    noted: dict[SiteId, dict[str, float]] = field(default_factory=dict)
    is_noisy: bool = False
    longest: LongestRows | None = None
    missing: Missing | None = None

    def find_declaration(self, owner: str, function: str) -> Declaration | None:
        """Return the declaration of a client function, or None if its fields are not declared."""
        declaration = self.declared.get(owner, {}).get(function)
        if declaration is None or declaration.returns is None:
            return None
        return declaration

    def note(self, name: str, numbers: Mapping[SiteId, int]) -> None:
        """Store a number of each site for later checks."""
        for site, number in numbers.items():
            self.noted.setdefault(site, {})[name] = float(number)

    def find_fault(
        self,
        declaration: Declaration,
        reply: Mapping[str, object],
        sites: Sequence[SiteId],
        room: float | None = None,
    ) -> str | None:
        """Explain why sites cannot have sent a reply or, with ``room``, its aggregate.

        Returns None for a plausible one. ``room`` is the rounding error of the aggregate.
        """
        returns = declaration.returns
        if returns is None:
            return None
        sender = sites[0] if room is None else TOGETHER
        levels: tuple[tuple[int, int], ...] = ()
        if self.missing is not None:
            levels = self.missing.levels
        known = SenderFacts(
            sizes=self.dims,
            sites=len(sites),
            is_total=room is not None,
            rows=total_known(self.rows, sites),
            labels=total_known(self.labels, sites),
            heaviest=float(sum(self.rows.values()) or WHOLE),
            longest=self._find_longest(sites),
            is_noisy=self.is_noisy and declaration.release,
            room=room or 0.0,
            tolerance=1e-6 if room is None else 1e-3,
            levels=levels,
            noted=self.noted.get(sender, {}),
        )
        why = find_fault(returns, reply, known)
        if why is None:
            parts = read_parts(reply, returns.fields(self.dims))
            self.noted.setdefault(sender, {}).update(returns.note(parts))
        return why

    def _find_longest(self, sites: Sequence[SiteId]) -> float:
        """Return the largest possible Σ |z|² over the labeled rows; infinite if it is unknown."""
        if self.longest is None or len(self.rows) < self.sites:
            return math.inf
        return self.longest(self.rows, sites)

    def largest_message(self, site: SiteId) -> int:
        """Return the largest plausible size of a site's message in bytes."""
        if not self.sizes:
            return self.largest
        rows = self.rows.get(site, 0)
        limit = bound_message(self.sizes, self.sites, self.width, rows, self.products)
        return min(self.largest, limit)

    def check_size(self, site: SiteId, blob: bytes) -> None:
        """Raise ValueError for a message that is too large to be parsed."""
        limit = self.largest_message(site)
        if len(blob) > limit:
            raise Refusal(
                f"its message has {len(blob)} bytes, more than the {limit} that the "
                "sizes of the model and of its data imply"
            )

    def check(self, site: SiteId, request: Request, reply: Received) -> Values:
        """Return a valid reply. Raises ValueError, naming the field, for an invalid one."""
        step = request.steps[-1]
        if step.kind == "fit":
            _check_names(reply, set())
            return {}
        if step.kind == "keep":
            return self._check_kept(site, reply)
        declaration = self.find_declaration(request.owner, step.function)
        if step.masked:
            checked = _check_masked(step, reply)
            if step.kind == "sum" and declaration is not None and declaration.returns:
                hidden = _narrow_masked(declaration, reply)
                why = find_wrong_form(declaration.returns, hidden, self.dims)
                if why is not None:
                    raise ValueError(why)
            return checked
        checked = check_plain(reply)
        if declaration is not None:
            self._check_declared(declaration, site, reply)
        if step.kind == "sum" and request.bound is not None:
            _check_bound(checked, request.bound)
        return checked

    def _check_kept(self, site: SiteId, reply: Received) -> Values:
        """Check the number of examples or tensors that a site keeps."""
        _check_names(reply, {"count"})
        count = reply["count"]
        limit = max(self.rows.get(site, WHOLE), KEPT)
        if type(count) is not int:
            raise Refusal(f"count is {count!r:.40}, which is not a whole number")
        if not 0 <= count <= limit:
            raise Refusal(f"count is {count}, but the site has {limit} examples")
        return dict(reply)

    def check_progress(self, site: SiteId, reply: Received) -> Values:
        """Return a valid reply about labeling progress."""
        checked = check_plain(reply)
        declaration = self.find_declaration("annotators", "progress")
        if declaration is not None:
            self._check_declared(declaration, site, reply)
        return checked

    def _check_declared(
        self, declaration: Declaration, site: SiteId, reply: Received
    ) -> None:
        """Raise ValueError for a reply that its declaration excludes."""
        why = self.find_fault(declaration, reply, [site])
        if why is not None:
            raise ValueError(why)

    def find_common(self, requests: Mapping[SiteId, Request]) -> Declaration | None:
        """Return the declaration of the client function of an exchange."""
        for request in requests.values():
            return self.find_declaration(request.owner, request.steps[-1].function)
        return None


def total_known(counts: Mapping[SiteId, int], sites: Sequence[SiteId]) -> float:
    """Return the total of registered counts; infinite if one is unknown."""
    if not all(site in counts for site in sites):
        return math.inf
    return float(sum(counts[site] for site in sites))


def check_plain(reply: Received) -> Values:
    """Return a reply after generic checks only: types and finite numbers."""
    for name, value in reply.items():
        _check_kind(name, value)
        if not is_finite(value):
            raise Refusal(describe_not_finite(name))
    return dict(reply)


def is_finite(value: object) -> bool:
    """Return whether a value has neither NaN nor infinite numbers."""
    if isinstance(value, Tensor):
        return are_finite(value)
    return not isinstance(value, float) or math.isfinite(value)


def _check_kind(name: str, value: object) -> None:
    """Raise unless the value is a tensor of a known type or a small plain value."""
    why = find_unknown_type(name, value)
    if why is not None:
        raise Refusal(why)


def _check_bound(reply: Values, bound: float) -> None:
    """Raise Refusal for a contribution with a number beyond the bound of a sum."""
    for name, value in reply.items():
        if value is None or isinstance(value, str):
            raise Refusal(f"{name} is {value!r:.40}, but a contribution must be numeric")
        sizes = torch.as_tensor(value, dtype=torch.float64).abs()
        if bool((sizes > bound).any()):
            raise Refusal(f"{name} exceeds the bound {bound:g} of a contribution")


def _check_masked(step: Step, reply: Received) -> Values:
    """Check a public key or a masked contribution, which is uniform over 64 bits."""
    if step.kind == "each":
        _check_names(reply, {"key"})
        key = reply["key"]
        is_row_of_bytes = isinstance(key, Tensor) and key.dtype == torch.uint8
        if not is_row_of_bytes or key.shape != (KEY,):
            raise Refusal(f"key is not a public key of {KEY} bytes")
        if not is_usable(key.numpy().tobytes()):
            raise Refusal("key is a public key that gives no shared secret")
    elif step.kind == "sum":
        for name, value in reply.items():
            if not isinstance(value, Tensor) or value.dtype != torch.int64:
                raise Refusal(f"{name} is not masked: a masked contribution is int64")
        if CHECK not in reply or reply[CHECK].ndim:
            raise Refusal(
                f"{CHECK} is not the single number that shows whether masks cancel"
            )
    return dict(reply)


def _narrow_masked(declaration: Declaration, reply: Received) -> dict[str, Any]:
    """Return the masked fields under their declared names, with one part of wide numbers.

    Raises Refusal for a wide number with another number of parts.
    """
    hidden: dict[str, Any] = {}
    for name, part in reply.items():
        plain_name = name.removesuffix(WIDE)
        is_wide = plain_name in declaration.wide_fields
        if name == CHECK:
            continue
        if is_wide != name.endswith(WIDE):
            hidden[name] = part  # an unknown field
        elif is_wide:
            if part.shape[-1:] != (PARTS,):
                raise Refusal(f"{plain_name} does not have {PARTS} parts of each number")
            hidden[plain_name] = part[..., 0]
        else:
            hidden[name] = part
    return hidden


def _check_names(reply: Received, expected: set[str]) -> None:
    if reply.keys() != expected:
        raise Refusal(
            f"its reply has the fields {sorted(reply)[:20]} instead of "
            f"{sorted(expected) or 'none'}"
        )


# -- at a site ----------------------------------------------------------------------------------


def check_instruction(request: Request, parts: RunComponents) -> None:
    """Raise ValueError for a request that no coordinator of this version makes.

    A site only runs client functions of the agreed algorithms as their declarations specify, with
    finite values. `SiteLimits` checks training configurations, models and arguments.
    """
    if not request.steps:
        raise Refusal(f"instruction {request.key} has no steps")
    if request.owner not in parts.asked:
        raise Refusal(
            f"instruction {request.key} is of {request.owner!r}; this study has "
            f"{sorted(parts.asked)}"
        )
    for number, step in enumerate(request.steps, 1):
        if step.kind != "fit":
            is_last = number == len(request.steps)
            _check_asked(request, step, parts, is_last=is_last)
        _check_args(request.key, step)


def sizes_of_models(layout: Layout) -> dict[str, int]:
    """Return the number of values in a model's ``w`` and ``stats``."""
    return {"w": layout.d, "stats": sum(layout.buffer_sizes)}


def _check_asked(request: Request, step: Step, parts: RunComponents, is_last: bool) -> None:
    """Raise unless the step is used as its algorithm specifies, or requests a mask key."""
    asks = f"instruction {request.key} requests {step.function!r} by {step.kind}"
    if not is_last:
        raise Refusal(f"{asks}, which is not its last step")
    if step.function == KEYS and step.kind == "each" and step.masked is not None:
        return
    if why := parts.asked[request.owner].contract.refusal(step.function, step.kind):
        raise Refusal(f"{asks}: {why}")


def _check_args(key: ExchangeKey, step: Step) -> None:
    for name, value in step.args.items():
        with explain_errors(f"instruction {key}: ", to=Refusal):
            _check_kind(name, value)
        if isinstance(value, Tensor) and not is_finite(value):
            raise Refusal(f"instruction {key} sends {name} with NaN or infinite numbers")


Form = tuple[tuple[str, str], ...]
"""Names of the fields of a reply with the type of each value."""


def find_inconsistent(
    replies: Mapping[SiteId, Values], are_ragged: bool = False
) -> dict[SiteId, str]:
    """Return the sites whose reply differs in fields or shapes from most others, and why.

    With ``are_ragged``, only the number of tensor dimensions must agree, because each site may
    report as many rows as it has. If several forms are equally frequent, the form of the first site
    in sorted order is used.

    >>> find_inconsistent({"a": {"n": 1.0}, "b": {"n": 2.0, "w": 1.0}, "c": {"n": 3.0}})
    {'b': "its reply has the fields ['n', 'w'], but the others have ['n']: all ..."}
    """
    if not replies:
        return {}
    forms = {site: _describe_form(replies[site], are_ragged) for site in sorted(replies)}
    usual = Counter(forms.values()).most_common(1)[0][0]
    refused: dict[SiteId, str] = {}
    for site, form in forms.items():
        if form != usual:
            refused[site] = _describe_difference(form, usual)
    return refused


def _describe_form(reply: Values, is_ragged: bool) -> Form:
    """Return the names in a reply in sorted order, and their shapes and types."""
    kinds = [(name, _describe_kind(value, is_ragged)) for name, value in reply.items()]
    return tuple(sorted(kinds))


def _describe_kind(value: Value, is_ragged: bool) -> str:
    if isinstance(value, Tensor) and value.ndim:
        if is_ragged:
            return f"a tensor of {value.ndim} dimensions"
        return f"a tensor of shape {tuple(value.shape)}"
    if value is None:
        return "nothing"
    if isinstance(value, str):
        return "text"
    return "a number"


def _describe_difference(form: Form, usual: Form) -> str:
    own = dict(form)
    others = dict(usual)
    if own.keys() != others.keys():
        return (
            f"its reply has the fields {sorted(own)}, but the others have "
            f"{sorted(others)}: all sites must run the same version"
        )
    name = next(name for name in own if own[name] != others[name])
    return (
        f"{name} is {own[name]}, but that of other sites is {others[name]}: all "
        "sites must use one model and run the same version"
    )


def is_ragged(request: Request) -> bool:
    """Return whether replies may differ in length because each describes one site's rows."""
    return request.owner != "annotators" and request.steps[-1].kind == "each"
