"""Plan of annotations: how many annotators label an example, what they see, and who decides."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal, final

from fallow.core.limits import Conflict, Limits, check_limits
from fallow.core.wording import count_noun
from fallow.deployment.no_label import NO_LABELS, NONE_OF_THESE, NoLabel

if TYPE_CHECKING:
    import torch

    from fallow.settings.config import ExperimentConfig

Rule = Literal["majority", "first", "median", "dawid-skene"]
"""How the label of an example with several annotations is decided."""
SHARE = Limits(ge=0, le=1)
LARGEST_GUIDED = 0.95
"""Largest share of labeling tasks with predictions. The rest shows how predictions influence."""
CONFIRMED_PER_CHECK = 20
"""Labels of sheets of which one is given again, which shows how many are wrong."""
SINGLE_ONLY = (
    ", but every example has a single annotation; set federation.answers to 2 or more, or "
    "federation.double_share"
)
CONFLICTS = (
    Conflict(
        ("answers", "double_share"),
        lambda answers, double_share: answers > 1 and double_share,
        "; both set the number of annotations of an example: set one of them only",
    ),
    Conflict(
        ("answers", "double_share", "decided_by"),
        lambda answers, double_share, rule: (
            answers == 1 and not double_share and rule != "majority"
        ),
        SINGLE_ONLY,
    ),
    Conflict(
        ("answers", "double_share", "send_agreement"),
        lambda answers, double_share, is_sent: (
            answers == 1 and not double_share and is_sent
        ),
        SINGLE_ONLY,
    ),
)
"""Settings that exclude each other."""
DESCRIPTIONS: Mapping[str, str] = {
    "answers": "annotations of each example, by different annotators; label budgets count "
    "annotations",
    "double_share": "share of the examples with two annotations, if answers is 1",
    "decided_by": "how several annotations become a label: majority, first, median (numbers) or "
    "dawid-skene (classes); annotators adjudicate the rest",
    "send_agreement": "send the agreement of a site's annotators (Krippendorff's alpha), over 10 or "
    "more examples",
    "checked_labels": "suspicious labels that each site checks in a cycle, in place of as many new "
    "examples (closed-form)",
    "guided_share": "share of labeling tasks that show the likeliest classes, which speeds labels up "
    "and influences them; the rest is labeled without (0.95: all but a random twentieth)",
    "none_of_these": "annotators may answer that no class fits; such examples get no label, similar "
    "ones are labeled later, and their number is sent (not beside epsilon)",
}
"""Descriptions of the settings, for ``study.toml`` and the options of ``coordinate init``."""


@final
@dataclass(frozen=True)
class AnswerPlan:
    """Number of annotations of an example, and the rule that decides its label.

    The plan belongs to the study agreement, and not to the settings of a site, because label budgets
    count annotations. The coordinator divides a budget by the plan before it requests examples, and
    each site checks the request with its own copy of the agreement. Both must use the same plan.
    ``study.toml``, the options of ``coordinate init`` and the fingerprint have every field.
    """

    answers: Annotated[int, Limits(ge=1)] = 1
    double_share: Annotated[float, SHARE] = 0.0
    decided_by: Rule = "majority"
    send_agreement: bool = False
    checked_labels: Annotated[int, Limits(ge=0)] = 0
    guided_share: Annotated[float, Limits(ge=0, le=LARGEST_GUIDED)] = 0.0
    none_of_these: bool = False
    CONFLICTS = CONFLICTS
    DESCRIPTIONS = DESCRIPTIONS

    def __post_init__(self) -> None:
        check_limits(self, "federation.")

    @property
    def has_several(self) -> bool:
        """Return whether some examples have several annotations."""
        return self.largest > 1

    @property
    def largest(self) -> int:
        """Return the largest number of annotations of an example."""
        if self.double_share:
            return 2
        return self.answers

    @property
    def no_labels(self) -> tuple[NoLabel, ...]:
        """Return the answers that are no label and that annotators may give."""
        if self.none_of_these:
            return NO_LABELS
        return tuple(answer for answer in NO_LABELS if answer != NONE_OF_THESE)

    def check_study(
        self,
        config: ExperimentConfig,
        n_classes: int,
        *,
        n_labels: int = 0,
        is_trained: bool,
    ) -> None:
        """Raise ValueError for a plan that does not fit the study.

        Parameters
        ----------
        config
            Experiment configuration of the study.
        n_classes
            Number of classes; 0 for other tasks.
        n_labels
            Number of labels of an example, if it has several; otherwise 0.
        is_trained
            Whether the study trains a model.
        """
        self._check_labels(n_classes, n_labels)
        for budget in config.purchases:
            if isinstance(budget, int) and budget and not self.count_examples(budget):
                raise ValueError(
                    f"a label budget is {count_noun(budget, 'annotation')} per site, but an example "
                    f"needs {self.largest} (federation.answers, federation.double_share); raise the "
                    "budget"
                )
        if self.checked_labels and config.evaluation_fraction:
            raise ValueError(
                f"federation.checked_labels is {self.checked_labels}, which leaves out selected "
                f"examples, and evaluation_fraction is {config.evaluation_fraction:g}, whose "
                "estimate needs them; omit one"
            )
        if self.guided_share and not is_trained:
            raise ValueError(
                f"federation.guided_share is {self.guided_share:g}, but training="
                f"{config.training} has no model that predicts classes; omit it"
            )
        if self.guided_share and config.evaluation_fraction:
            raise ValueError(
                f"federation.guided_share is {self.guided_share:g}, which influences labels, and "
                f"evaluation_fraction is {config.evaluation_fraction:g}, whose estimate would "
                "then favor the model; omit one"
            )
        if self.send_agreement and config.privacy.epsilon is not None:
            raise ValueError(
                "federation.send_agreement is true, but alpha is sent without noise, and "
                "privacy.epsilon promises noise; set one of them only"
            )

    def _check_labels(self, n_classes: int, n_labels: int) -> None:
        """Raise ValueError for a plan that does not fit the labels."""
        if self.guided_share and n_classes < 2:
            raise ValueError(
                f"federation.guided_share is {self.guided_share:g}, but the labels are not classes, "
                "of which a page could show the likeliest; leave it out"
            )
        if self.none_of_these and n_classes < 2:
            raise ValueError(
                "federation.none_of_these is true, but the labels are not classes, none of which "
                "could fit; leave it out"
            )
        if not self.has_several:
            return
        if n_labels:
            if self.decided_by in ("median", "dawid-skene"):
                raise ValueError(
                    f"federation.decided_by is {self.decided_by!r}, which does not support several "
                    "labels of an example; use 'majority' or 'first'"
                )
            return
        if n_classes and self.decided_by == "median":
            raise ValueError(
                "federation.decided_by is 'median', but the labels are classes; use 'majority', "
                "'first' or 'dawid-skene'"
            )
        if not n_classes and self.decided_by in ("majority", "dawid-skene"):
            raise ValueError(
                f"federation.decided_by is {self.decided_by!r}, but the labels are numbers, which "
                "rarely agree exactly; use 'median' or 'first'"
            )

    def count_annotations(self, examples: int) -> int:
        """Return the largest number of annotations of a number of examples.

        >>> AnswerPlan(double_share=0.1).count_annotations(11)
        13
        """
        if self.double_share:
            return examples + math.ceil(self.double_share * examples - 1e-9)
        return examples * self.answers

    def count_examples(self, annotations: int) -> int:
        """Return the number of examples for which a number of annotations suffices.

        >>> [AnswerPlan(answers=2).count_examples(n) for n in (1, 2, 21)]
        [0, 1, 10]
        >>> AnswerPlan(double_share=0.1).count_examples(13)
        11
        """
        if not self.double_share:
            return annotations // self.answers
        examples = math.ceil(annotations / (1 + self.double_share))
        while self.count_annotations(examples) > annotations:
            examples -= 1
        return examples

    def draw_answers(self, examples: int, draw: torch.Generator) -> list[int]:
        """Return the number of annotations of each example of a step.

        The examples with two annotations are drawn at random. On average their share is
        ``double_share``, and it never exceeds `count_annotations`.
        """
        answers = [self.answers] * examples
        if self.double_share:
            largest = self.count_annotations(examples) - examples
            for example in _draw_share(self.double_share, examples, draw)[:largest]:
                answers[example] = 2
        return answers

    def draw_guided(self, examples: int, draw: torch.Generator) -> list[bool]:
        """Return for each example of a step whether annotators see predictions before they label.

        The examples without predictions are drawn at random. On average their share is
        ``1 - guided_share``.
        """
        if not self.guided_share:
            return [False] * examples
        blind = set(_draw_share(1 - self.guided_share, examples, draw))
        return [example not in blind for example in range(examples)]

    def count_again(self, confirmed: int, again: int, tasks: int) -> int:
        """Return the number of confirmed labels that annotators give again in a step.

        confirmed: number of labels from sheets.  again: those that were given again before.  tasks:
        number of tasks of the step, of which at most half are second ones.

        >>> plan = AnswerPlan(guided_share=0.9)
        >>> plan.count_again(45, 1, tasks=10), plan.count_again(200, 0, tasks=10)
        (1, 5)
        """
        if not self.guided_share:
            return 0
        return max(0, min(confirmed // CONFIRMED_PER_CHECK - again, tasks // 2))

    def sends_predictions(self, config: ExperimentConfig) -> bool:
        """Return whether sites send how many labels equal predictions, which has no noise."""
        return self.guided_share > 0 and config.privacy.epsilon is None

    def sends_none(self, config: ExperimentConfig) -> bool:
        """Return whether sites send how many examples no class fits, which has no noise."""
        return self.none_of_these and config.privacy.epsilon is None

    def describe(self) -> list[str]:
        """Return sentences about annotations, checks and shown predictions, if there are any."""
        others: list[str] = []
        if self.checked_labels:
            labels = count_noun(self.checked_labels, "suspicious label")
            others.append(
                f"annotators check up to {labels} of this site in each cycle, in place of new "
                "examples; predictions that leave out each label stay at this site"
            )
        if self.guided_share:
            others.append(
                f"annotators see the likeliest classes of {100 * self.guided_share:g} % of the "
                "examples before they label, and may confirm several at once, which cost as much as "
                "other labels; this saves time and draws labels towards the predictions, and the "
                "other examples show how far; one of "
                f"{CONFIRMED_PER_CHECK} confirmed labels is given again, in place of a new example"
            )
        if self.none_of_these:
            others.append(
                "annotators may answer 'none of these' if no class fits an example; it gets no label, "
                "and similar examples are labeled later at this site"
            )
        if not self.has_several:
            return others
        share = f"{self.answers} annotations of each example"
        if self.double_share:
            share = f"two annotations of {100 * self.double_share:g} % of the examples"
        return [
            f"{share}, by different annotators; label budgets count annotations; "
            f"labels are decided by {self.decided_by}",
            *others,
        ]

    def find_shortage(self, annotators: int) -> list[str]:
        """Return a sentence if a site has too few annotators for the plan, or nothing."""
        if annotators >= self.largest:
            return []
        return [
            f"this site has {count_noun(annotators, 'annotator')}, but {self.largest} must annotate an "
            "example: such labeling tasks stay open until their deadline; add annotators, and set "
            "annotators under [labels] in site.toml"
        ]


SINGLE = AnswerPlan()
"""One annotation of each example."""


def _draw_share(share: float, examples: int, draw: torch.Generator) -> list[int]:
    """Return random examples, whose share is ``share`` on average."""
    import torch  # command-line options read the settings without it

    order = torch.randperm(examples, generator=draw)
    more = float(torch.rand((), dtype=torch.float64, generator=draw))
    drawn: list[int] = order[: math.floor(share * examples + more)].tolist()
    return drawn
