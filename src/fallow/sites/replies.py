"""Replies of a site: run client functions on a view and return what their operations permit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
import torch

from fallow.core.client import list_label_counts
from fallow.core.messages import Request, Step
from fallow.core.methods import Method, site_function
from fallow.core.refusal import Refusal, explain_errors
from fallow.core.types import State, Values
from fallow.core.view import Release, SelectedExamples
from fallow.sites.site import FEATURE_SCALES, LocalSite
from fallow.sites.store import Answers, Question
from fallow.sites.view import SiteView
from fallow.storage.files import digest_of

OPTIONAL_VALUES = ("weight", "probability", "score")
"""Optional values of each selected example."""
DEFAULTS = {"weight": 1.0}
"""Defaults for missing values; NaN for the others."""


Result = Values | SelectedExamples | Release
"""Result of a client function."""


def reply_to_step(site: LocalSite, step: Step, request: Request) -> Values:
    """Run a client function and return exactly what its operation permits, with noise and masks."""
    if step.masked is not None and step.kind == "each":
        return site.guard.public_key(step.masked)
    method = site.method(request.owner)
    why = method.contract.refusal(step.function, step.kind)
    if why:
        raise Refusal(
            f"site {site.id} does not answer {step.function!r} by {step.kind}: {why}"
        )
    wanted = None
    if step.kind == "keep":
        counts = list_label_counts(method, step.function, step.kind, step.args)
        wanted = next(iter(counts), None)
    if wanted is not None and len(site.pool) == 0:
        return {"count": 0}  # an empty pool: no strategy can select
    if request.owner == "query":
        site.release_rows()
    site.guard.check(step)
    view = SiteView(site, request.cycle, method.contract.simulator_only)
    declaration = site.parts.declarations[request.owner].get(step.function)
    result: Result
    try:
        run = partial(site_function(method, step.function), view, **step.args)
        if declaration is not None and declaration.over and site.parts.answers is not None:
            question = _name_question(site, method, step, declaration.over)
            result = _answer_once(site.parts.answers, question, run)
        elif site.parts.selection is None:
            result = run()
        else:
            result = site.parts.selection.run(run)
    except Exception as error:
        raise RuntimeError(
            f"{type(method).__name__}.{step.function} failed at site {site.id} in cycle "
            f"{request.cycle}, round {request.round}: {_describe(error)}"
        ) from error
    is_selection = wanted is not None
    with explain_errors(f"{type(method).__name__}.{step.function} at site {site.id}: "):
        if is_selection and isinstance(result, list | tuple | np.ndarray | torch.Tensor):
            result = SelectedExamples(result)  # type: ignore[arg-type] # it converts to a tensor
        if isinstance(result, SelectedExamples):
            return _keep_picks(site, step, result, wanted)
    if not isinstance(result, Mapping | Release):
        expected = "a dictionary of tensors"
        if is_selection:
            expected = (
                "n positions in the unlabeled pool: a list, an array, a tensor, or "
                "SelectedExamples(positions)"
            )
        raise TypeError(
            f"{type(method).__name__}.{step.function} returned a {type(result).__name__}; return "
            f"{expected}"
        )
    if step.kind != "keep":
        wide_fields = declaration.wide_fields if declaration else ()
        return site.guard.protect(step, request, result, wide_fields)
    if isinstance(result, Release):
        result = result.post(result.counts)
    state = {name: torch.as_tensor(value) for name, value in result.items()}
    site.remember(step.function, state)
    return {"count": len(state)}


def _name_question(site: LocalSite, method: Method, step: Step, over: str) -> Question:
    """Return what determines a sum over examples whatever their labels."""
    examples = digest_of(site.examples if over == "all" else site.pool)
    scales = {name: site.memory[name] for name in FEATURE_SCALES if name in site.memory}
    question = {
        "site": site.id,
        "algorithm": repr(method),
        "function": step.function,
        "args": dict(step.args),
        "examples": examples,
        "scales": scales,
    }
    return Question(over, examples, digest_of(question))


def _answer_once(
    answers: Answers, question: Question, compute: Callable[[], Result]
) -> Result:
    """Return the earlier answer to a question, or compute and store it."""
    known = answers.load_answer(question)
    if known is not None:
        return known
    reply = compute()
    if isinstance(reply, dict):  # noise and selections are not for several runs
        answers.keep_answer(question, reply)
    return reply


def _describe(error: Exception) -> str:
    """Return the message of an error, preceded by its type if the message is not a sentence.

    >>> _describe(KeyError("age")), _describe(ValueError("give one"))
    ("KeyError: 'age'", 'give one')
    """
    if isinstance(error, ValueError | AttributeError | RuntimeError):
        return str(error)
    return f"{type(error).__name__}: {error}"


def _keep_picks(
    site: LocalSite, step: Step, selected: SelectedExamples, wanted: int | None
) -> Values:
    if step.kind != "keep":
        raise ValueError(
            f"{step.function!r} selects examples, so it must be called with ask.keep"
        )
    if wanted is None:
        wanted = len(selected.rows)
    pool = site.pool
    before = site.memory.get("selected")
    if not selected.is_beside:
        before = None
    taken = 0
    if before is not None:
        taken = len(before["rows"])
    n_due = min(wanted, len(pool) - taken)
    if selected.is_beside and site.groups is not None:  # groups with a label are left out
        n_due = min(n_due, len(selected.rows))
    selected.check(len(pool), n_due)
    state = {"rows": pool[selected.rows]}
    for name in OPTIONAL_VALUES:
        values = getattr(selected, name)
        if values is not None:
            state[name] = values
    if selected.is_beside:
        state = _join_picks(before, state)
    site.remember("selected", state)
    return {"count": len(selected.rows)}


def _join_picks(before: State | None, more: State) -> State:
    """Join two selections of examples; ``beside`` marks the examples of the second one.

    Optional values that a selection does not provide are NaN. Raises ValueError if an example is
    selected twice.
    """
    if before is None:
        before = {"rows": more["rows"][:0]}
    joined = {"rows": torch.cat([before["rows"], more["rows"]])}
    if len(set(joined["rows"].tolist())) < len(joined["rows"]):
        raise ValueError("an additional example was already selected")
    for name in OPTIONAL_VALUES:
        if name not in before and name not in more:
            continue
        parts = []
        for selected in (before, more):
            default = DEFAULTS.get(name, float("nan"))
            usual = torch.full((len(selected["rows"]),), default, dtype=torch.float64)
            parts.append(selected.get(name, usual).double())
        joined[name] = torch.cat(parts)
    joined["beside"] = torch.arange(len(joined["rows"])) >= len(before["rows"])
    return joined
