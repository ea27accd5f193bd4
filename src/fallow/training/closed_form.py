"""Closed-form linear models on fixed features.

Sites send the products of their labeled examples with one another and with the labels.  The server
side solves for all penalties at once.  Sites then send the leave-one-out losses of the solutions,
and the best one is used.  The result depends on the examples of all sites together, not on their
distribution over sites.

Related work: Fed3R (Fanì et al., ICML 2024), AFL (He et al., CVPR 2025).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar, Literal, NamedTuple, final

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from fallow.core import client
from fallow.core.ask import Ask, sum_of_all
from fallow.core.client import declared
from fallow.core.composites import ExampleProducts, Products
from fallow.core.contract import Contract
from fallow.core.fit_declarations import STORED, FitDeclaration
from fallow.core.limits import Limits, PositiveFinite, check_fields
from fallow.core.suggestions import explain_constructor, refuse_unused
from fallow.core.training_config import TrainingConfig
from fallow.core.types import State, Values
from fallow.core.values import (
    SUM_OF_WEIGHTS,
    Count,
    Kind,
    NonNegative,
    Optional,
    Real,
    Share,
    Whole,
)
from fallow.core.view import FOLDS, Release, View
from fallow.training.parts.adassp import SENSITIVITY, read_products, solve, sum_products
from fallow.training.parts.closed_form import (
    AT_SERVER,
    FEW,
    LEFT_OUT,
    LOSSES,
    MISSING,
    PARTS_SHOW,
    PATH_SHOWS,
    SETTINGS,
    TOTALS,
    AggregatedStatistics,
    LabeledBlocks,
    SelectedPenalty,
    check_linear_model,
    choose_best,
    choose_left_out,
    choose_without_rows,
    class_weights,
    feature_width,
    find_penalty_limit,
    flatten_head,
    limit_penalties,
    losses_of,
    note_choice,
    path_kinds,
    penalties_of,
    read_labeled,
    read_totals,
    totals_of,
)
from fallow.training.parts.leave_one_out import find_suspicious
from fallow.training.parts.ridge import (
    MOST_AWAY,
    TEMPERATURES,
    LinearHead,
    Path,
    add_up,
    centered,
    decompose,
    freedom,
    head_of,
    log_losses,
    predict,
    rotate,
    rotate_back,
    row_blocks,
    solve_head,
    sum_features,
    validation_score,
)
from fallow.training.parts.self_training import (
    DIRECTIONS,
    FEATURES_A_CLASS,
    PASSES,
    find_known,
    fix_labels,
    guess_all,
    has_enough,
    has_enough_features,
    mix_heads,
    prepare_examples,
    read_examples,
    read_prepared,
    stack_heads,
    sum_anchors,
    sum_examples,
    sum_held_out,
    sum_soft_labels,
    take_fold,
    train_smoothed,
    train_totals,
    weigh_plain,
)
from fallow.training.parts.site_prior import adapt_bias, estimate_shares, limit_shares

DELTA = Limits(
    gt=0,
    le=1e-2,
    advice=": well below 1 divided by the number of labeled examples, such as 1e-5",
)
MOST_AXES = 0.4
"""Share of the features up to which axes and products in their coordinates are fewer numbers than
products of features."""
FOLD_TOTALS = "aggregates of products of labeled examples of a fold, and labels"
TINY = 1e-300  # means are 0 if no site has a label
POOL_SHOWS = "it also sees those of all examples of each site"
DIRECTIONS_SHOW = (
    f"every site receives {DIRECTIONS} principal directions of the features of all examples"
)
MODELS = {
    "weight": Real(("models", "features", "classes")),
    "bias": Real(("models", "classes")),
}
SHARES = NonNegative(("models", "classes"))


class SelfTrainingResult(NamedTuple):
    """Result of self-training.

    The model, its λ, T and held-out score, the weight of the model of all examples, its gain in
    held-out accuracy (None without cross-validation), and the same models without each fold.
    """

    head: LinearHead
    choice: SelectedPenalty
    weight: float = 0.0
    gain: float | None = None
    without_fold: tuple[LinearHead, ...] = ()


@explain_constructor
@final
@dataclass(frozen=True)
class ClosedForm:
    """Solve for a linear classifier or regressor in closed form (ridge regression).

    The model minimizes Σ s |y - W'z - b|² + λ n |W|² over the labeled examples of all sites, where
    n = Σ s and y are one-hot classes or regression targets.  Outputs are multiplied by a
    temperature T, so that their softmax is calibrated.

    The algorithm is for the model ``linear`` on standardized features, such as those of an
    ``encoder``.  λ and T are selected by leave-one-out cross-validation over the labeled examples
    of all sites.  One round is sufficient (``rounds=1``), and the settings of local training are
    not used.

    Parameters
    ----------
    penalty : float, optional
        Ridge penalty λ.  None: selected from 1e-6 to 1, and from 1e-6 to 0.3 / n with fewer than
        10 labels per class.
    balance : {"none", "class"}
        "class" gives all classes the same total weight.
    weighted : bool
        Apply the weights that the query strategy assigns to examples.
    reveal : {"path", "head"}
        Information that sites receive.  "path": the solutions of all penalties, for exact
        leave-one-out.  "head": a single solution; λ is then selected by generalized
        cross-validation.
    local_head : {"common", "own"}
        Local model, for query strategies that compare it with the global model: the global
        solution, or the solution of the site's own examples.
    passes : int
        2: center the features in a separate exchange, for features with means far from 0.
    shown : {"totals", "parts"}
        Information that the coordinator of a federation may see: aggregates only, which requires
        secure aggregation, or the contribution of each site.
    delta : float, optional
        δ of differential privacy, with ``privacy.epsilon``.  It protects one example and its label
        in the model.  Sites add Gaussian noise to their contribution, once per end of labeling.
    unlabeled : {"auto", "off"}, optional
        Self-training with unlabeled examples.  "auto": for classes and with ten features per class;
        its weight follows from the number of labels or five-fold cross-validation.  None: "auto",
        and "off" with ``delta``, whose noise does not cover it.
    site_prior : {"off", "auto"}
        "auto": each site corrects the model by the class shares of its own examples, if that improves
        predictions of held-out labels over all sites.  With too few labels for cross-validation, it
        does so without a comparison.  Needs self-training.
    label_ranks : bool
        Each site ranks its own labels by suspicion and keeps the ranking
        (``federation.checked_labels``).  Sites receive the solutions a second time, with λ.

    Notes
    -----
    The related algorithms use a fixed λ.  Features of an encoder are divided by the square
    root of their number. The mean square norm of an example is then 1, and one grid of
    penalties suits any number of features.

    *Disclosure.*  Products disclose more than gradients.  Without secure aggregation, the
    coordinator sees the products of each site, and the product of a single example reveals it.
    With ``reveal="path"``, every site learns the second moments of all labeled examples.  The
    leave-one-out accuracy is computed over all sites: the accuracy of each site would disclose how
    the model predicts its labels, which secure aggregation hides.

    *Self-training.*  Each site connects its most similar examples, labeled or not, along 64
    principal directions.  Class probabilities of the model of labels spread along these
    connections, and a second model fits them, in up to eight passes, until its outputs hardly change
    (`fallow.training.parts.self_training`).  The result is v times the model of labels plus 1 - v
    times the second one.  With n labels in C classes, v = n / (n + 5 C).  From 5 labels per class
    and 50 in all on, v is this number, 0 or 1, by the Brier score of five-fold cross-validation.  A
    label belongs to the fold with the fewest labels of its class at its site, for good: no fold is
    drawn anew.  The second model gives all examples the same weight.  It depends on the
    distribution of examples over sites, because each site compares its own.  With fewer than ten
    features per class, the model of labels stays: a linear model cannot fit the probabilities then.

    *Site prior.*  Class shares of a site follow from its own examples, labeled or not
    (`fallow.training.parts.site_prior`).  Models then differ between sites, and only examples of the
    same site gain: leave it off for a common test set.  The correction of a site is not sent.

    *Groups.*  With groups, such as the patients of several images, whole groups are left out, exactly
    and without refitting.  Folds do not divide a group either.  Generalized cross-validation
    (``reveal="head"``) and ``label_ranks`` do not know groups.

    *Leave-one-out accuracy.*  Query strategies prefer difficult examples.  The leave-one-out
    accuracy is then lower than the accuracy on all examples.

    *Differential privacy.*  With ``delta``, the solution is that of AdaSSP (Wang, 2018;
    `fallow.training.parts.adassp`).  Each site adds noise that is sufficient for itself, so no site
    needs to trust another one.  With K sites, the noise of the aggregate is √K times that of a
    trusted party.  Examples are clipped to norm 1 and have equal weights.  λ is derived from the
    noise or equals ``penalty``, and T is derived from the noisy aggregates, because leave-one-out
    would require the examples.  One labeled example and its label are private, but not the number
    of labels.  The aggregates over all examples to which encoders and feature scaling are fitted
    are not covered, and real sites refuse them.

    References
    ----------
    Fanì, Camoriano, Caputo, Ciccone. Accelerating Heterogeneous Federated Learning with Closed-form
    Classifiers. 2024.

    Examples
    --------
    >>> import fallow as fl
    >>> federation = fl.Federation(fl.load("digits"), fl.Dirichlet(alpha=0.01), sites=4)
    >>> fl.run(federation, fl.Margin(), training=fl.ClosedForm(unlabeled="off"), cycles=1)
    Run(margin on digits, seed 0: 2 phases, 167 labels, accuracy 0.97)
    """

    training_config: TrainingConfig = field(
        default=TrainingConfig(), init=False, repr=False
    )
    penalty: PositiveFinite | None = None  # λ
    balance: Literal["none", "class"] = "none"
    weighted: bool = True
    reveal: Literal["path", "head"] = "path"
    local_head: Literal["common", "own"] = "common"
    passes: Literal[1, 2] = 1
    shown: Literal["totals", "parts"] = "totals"
    delta: Annotated[float, DELTA] | None = (
        None  # δ; usually 1e-5, well below 1 / number of labels
    )
    unlabeled: Literal["auto", "off"] | None = None
    site_prior: Literal["off", "auto"] = "off"
    label_ranks: bool = False

    contract: ClassVar[Contract] = Contract(
        title="Closed-form head",
        paper="Accelerating Heterogeneous Federated Learning with Closed-form Classifiers",
        year=2024,
        authors="Fanì, Eros and Camoriano, Raffaello and "
        "Caputo, Barbara and Ciccone, Marco",
        short="closed-form",
        missing=MISSING,
        regression=True,
        model="linear",
        local_dp=False,
        delta_field="delta",
        settings=SETTINGS,
        fit=FitDeclaration(
            {"local": STORED},
            server=(*AT_SERVER, "unlabeled", "unlabeled_gain", "site_prior_gain"),
        ),
        tags=("least-squares",),
    )

    def __post_init__(self) -> None:
        check_fields(self)
        if self.delta is not None:
            self._check_private(self.delta)
        refuse_unused(self, "weighted", "reveal", switch="delta", used_with=(None,))
        if self.site_prior == "auto" and not self.learns_unlabeled:
            raise ValueError(
                "ClosedForm's site_prior is 'auto', but its class shares come from self-training, "
                "which delta and unlabeled='off' exclude: omit site_prior, or these"
            )
        if self.label_ranks and (self.delta is not None or self.reveal == "head"):
            raise ValueError(
                "ClosedForm ranks labels by the solutions that sites receive with reveal='path' and "
                "without delta: set training=closed-form:reveal=path, with which sites can compute "
                "examples of other sites, or omit label_ranks (federation.checked_labels)"
            )
        object.__setattr__(self, "contract", self._narrow_contract())

    def _check_private(self, delta: float) -> None:
        """Raise ValueError for settings that noise cannot protect."""
        not_private = {
            "balance": (("none",), "exact counts of classes"),
            "passes": ((1,), "exact means of labeled examples"),
            "local_head": (("common",), "exact examples of the site"),
            "unlabeled": ((None, "off"), "exact sums over all examples"),
        }
        for name, (private, reads) in not_private.items():
            if getattr(self, name) not in private:
                raise ValueError(
                    f"ClosedForm's {name} is {getattr(self, name)!r} and its delta "
                    f"{delta:g}: this needs {reads}, which are not private; omit {name}, "
                    "or delta"
                )

    def _narrow_contract(self) -> Contract:
        """Return the contract of these settings, without client functions that they never call."""
        if self.delta is None:
            return ClosedForm.contract.narrowed(
                self,
                weighs=self.has_weights,
                regression=self.balance == "none"
                and self.site_prior == "off",  # numbers have no classes
                sites_see=self.path_shows,
            )
        return ClosedForm.contract.narrowed(
            self,
            local_dp=True,
            always_noisy=True,
            weighs=False,
            regression=False,  # the scale of regression targets uses exact labels
        )

    @property
    def path_shows(self) -> str:
        """Information that sites receive about examples of other sites, beside the model."""
        shown = [PATH_SHOWS] if self.reveal == "path" else []
        if self.learns_unlabeled:
            shown.append(DIRECTIONS_SHOW)
        return "; ".join(shown)

    @property
    def learns_unlabeled(self) -> bool:
        """Whether unlabeled examples may be used."""
        return self.unlabeled != "off" and self.delta is None

    def narrowed_to(self, features: int, classes: int) -> ClosedForm:
        """Return the algorithm without self-training if the data do not allow it."""
        if self.learns_unlabeled and not has_enough_features(features, classes):
            return replace(self, unlabeled="off", site_prior="off")
        return self

    def describe_extras(self, features: int | None, classes: int) -> str:
        """Return whether unlabeled examples are used, and why they are not."""
        if not classes or self.unlabeled == "off":
            return ""
        if self.delta is not None:
            return "no self-training, because delta is set"
        if features is not None and not has_enough_features(features, classes):
            what = "no self-training"
            if self.site_prior == "auto":
                what = "neither self-training nor a site prior"
            return f"{what}, because there are fewer than {FEATURES_A_CLASS} per class"
        without = replace(self, unlabeled="off", site_prior="off")
        more = count_calls(self) - count_calls(without)
        return (
            f"self-training on unlabeled examples in up to {more} more exchanges per cycle, which "
            "send exact products of all examples and of folds of labels, and summed class "
            "probabilities"
        )

    @property
    def has_weights(self) -> bool:
        """Whether examples may have weights other than 1."""
        return self.weighted or self.balance == "class"

    @property
    def weight_kinds(self) -> dict[str, Kind]:
        """Argument with the weights of classes, if they are balanced."""
        return {"weights": Optional(NonNegative("classes"), self.balance == "class")}

    @property
    def center_kinds(self) -> dict[str, Kind]:
        """Argument with the center of features, with two passes."""
        return {"center": Optional(Real("features"), self.passes == 2)}

    # -- server side ------------------------------------------------------------------------

    def round(self, state: State, ask: Ask) -> State:
        if self.delta is not None:
            return self.private_round(state, ask)
        weights = class_weights(ask, self.class_counts) if self.balance == "class" else None
        center = self.find_center(ask, weights)
        total = read_totals(
            sum_of_all(ask, self.totals, weights=weights, center=center), center
        )
        if float(total.totals.mass) > 0:
            path = decompose(total.totals)
            choice = self.choose(ask, path, total, weights)
            head = head_of(path, choice.penalty)
            notes = note_choice(choice)
            if self.label_ranks:
                ask.keep(
                    self.rank_labels,
                    penalty=choice.penalty,
                    weights=weights,
                    **path._asdict(),
                )
            if self.learns_unlabeled:
                supervised = SelfTrainingResult(head, choice)
                result = self.train_on_unlabeled(
                    ask, total, path, supervised, weights=weights, center=center
                )
                head = result.head
                choice = result.choice
                notes = note_self_training(result)
                if self.site_prior == "auto" and result is not supervised:
                    notes |= self.adapt_sites(ask, result, total, weights)
            w = flatten_head(head, choice.temperature).to(state["w"].dtype)
            state = {**state, "w": w, **notes}
            if self.local_head == "own":
                ask.keep(
                    self.local,
                    penalty=choice.penalty,
                    temperature=choice.temperature,
                    weights=weights,
                )
                return state
        ask.fit(None, "local", None, w=state["w"], stats=state["stats"])
        return state

    def private_round(self, state: State, ask: Ask) -> State:
        """Aggregate with noise in one exchange, and solve from the result alone."""
        result = sum_of_all(ask, self.noisy_totals)
        rows = int(result["rows"])
        if rows:
            noisy = read_products(result["noisy"], weights=len(state["w"]))
            choice = solve(noisy, rows, self.penalty)
            w = flatten_head(choice.head, choice.temperature).to(state["w"].dtype)
            state = {
                **state,
                "w": w,
                **note_choice(SelectedPenalty(choice.penalty, choice.temperature, None)),
            }
        ask.fit(None, "local", None, w=state["w"], stats=state["stats"])
        return state

    def find_center(self, ask: Ask, weights: Tensor | None) -> Tensor | None:
        """Return the mean of labeled features, (D,), with two passes."""
        if self.passes == 1:
            return None
        result = sum_of_all(ask, self.center, weights=weights)
        return result["features"] / result["n"].clamp_min(TINY)

    def choose(
        self, ask: Ask, path: Path, total: AggregatedStatistics, weights: Tensor | None
    ) -> SelectedPenalty:
        """Select λ and T by leave-one-out predictions."""
        if self.reveal == "head":
            return self.choose_by_totals(ask, path, total, weights)
        return choose_left_out(
            ask, self.left_out, path, total, self.penalty, weights=weights
        )

    def choose_by_totals(
        self,
        ask: Ask,
        path: Path,
        total: AggregatedStatistics,
        weights: Tensor | None,
    ) -> SelectedPenalty:
        """Select λ by generalized cross-validation.

        Sites then receive that single solution, and leave examples out with the mean leverage.
        """
        penalties = penalties_of(self.penalty)
        if total.rows < FEW:
            return choose_without_rows(penalties)
        limit = find_penalty_limit(total) if self.penalty is None else None
        penalties = limit_penalties(penalties, limit)
        squares = total.squares - float(path.mass * path.y.square().sum())
        scores = [validation_score(path, item, squares, total.rows) for item in penalties]
        penalty = penalties[scores.index(min(scores))]

        head = head_of(path, penalty)
        leverage = (freedom(path, penalty) / total.rows).clamp_max(1 - 1 / total.rows)
        lost = sum_of_all(
            ask, self.fitted, **head._asdict(), leverage=leverage, weights=weights
        )
        of_one = {name: lost[name][None] for name in lost if name != "sites"}
        return choose_best(of_one, [penalty], path.mass)._replace(penalty_limit=limit)

    # -- server side, self-training -----------------------------------------------------------

    def train_without_folds(
        self,
        ask: Ask,
        total: AggregatedStatistics,
        path: Path,
        penalty: float,
        *,
        weights: Tensor | None,
        center: Tensor | None,
    ) -> list[LinearHead]:
        """Return the models of labels without each fold; none with too few labels.

        Sites that receive the path send products in coordinates of its eigenvectors, if labels are
        few: these are fewer numbers and determine the same models.
        """
        per_class = sum_of_all(ask, self.class_counts)["counts"].clamp_min(0)
        if not has_enough(per_class):
            return []
        axes = None
        whole = total.totals
        if self.reveal == "path":
            few, rotated = rotate(path, center)
            if few.shape[1] <= MOST_AXES * len(few):
                axes, whole = few, rotated
        folds = []
        for fold in range(FOLDS - 1):
            part = sum_of_all(
                ask,
                self.fold_totals,
                None,
                fold=fold,
                axes=axes,
                center=center,
                weights=weights,
            )
            folds.append(read_totals(part, None if axes is not None else center).totals)
        heads = [solve_head(rest, penalty) for rest in train_totals(whole, folds)]
        if axes is None:
            return heads
        return [rotate_back(head, axes, center) for head in heads]

    def train_on_unlabeled(
        self,
        ask: Ask,
        total: AggregatedStatistics,
        path: Path,
        supervised: SelfTrainingResult,
        *,
        weights: Tensor | None,
        center: Tensor | None,
    ) -> SelfTrainingResult:
        """Return a mixture of the supervised model and the one of all examples."""
        classes = total.totals.b.shape[1]
        examples = read_examples(
            sum_of_all(ask, self.example_totals, center=center), center
        )
        if float(examples.mass) < total.rows + 1:
            return supervised
        plain = [
            supervised.head,
            *self.train_without_folds(
                ask,
                total,
                path,
                supervised.choice.penalty,
                weights=weights,
                center=center,
            ),
        ]
        ask.keep(self.prepare, None, directions=examples.directions, **stack_heads(plain))
        smoothed = train_smoothed(
            ask, self.anchor_shares, self.soft_labels, plain, examples, center
        )
        v = weigh_plain(total.rows, classes)
        if len(plain) == 1:
            head = mix_heads(smoothed[0], plain[0], v)
            return supervised._replace(head=head, weight=1 - v)

        candidates = (1.0, v, 0.0)
        heads = []
        for candidate in candidates:
            for by_all, by_labels in zip(smoothed[1:], plain[1:], strict=True):
                heads.append(mix_heads(by_all, by_labels, candidate))
        result = sum_of_all(
            ask,
            self.held_out,
            None,
            **stack_heads(heads),
            weights=weights,
        )
        best = int(result["squared"].argmin())
        mass = float(total.totals.mass)
        gain = float(result["right"][best] - result["right"][0]) / mass
        without_fold = tuple(heads[best * FOLDS : (best + 1) * FOLDS])
        if best == 0:
            return supervised._replace(gain=gain, without_fold=without_fold)
        temperature = TEMPERATURES[int(result["log"][best].argmin())]
        choice = supervised.choice._replace(
            temperature=temperature, left_out=float(result["right"][best]) / mass
        )
        head = mix_heads(smoothed[0], plain[0], candidates[best])
        return SelfTrainingResult(head, choice, 1 - candidates[best], gain, without_fold)

    def adapt_sites(
        self,
        ask: Ask,
        result: SelfTrainingResult,
        total: AggregatedStatistics,
        weights: Tensor | None,
    ) -> State:
        """Let sites correct the model by their class shares, and return the held-out gain.

        The gain is 0 if the correction does not improve the Brier score and is left out.
        """
        models = stack_heads([result.head, *result.without_fold])
        sums = sum_of_all(ask, self.class_shares, None, **models)["shares"]
        is_better = True
        notes: State = {}
        if result.without_fold:
            lost = sum_of_all(
                ask,
                self.held_out_prior,
                None,
                **stack_heads(result.without_fold),
                common=sums[1:],
                weights=weights,
            )
            is_better = bool(lost["squared"][1] < lost["squared"][0])
            gain = float(lost["right"][1] - lost["right"][0]) / float(total.totals.mass)
            notes["site_prior_gain"] = torch.tensor(gain * is_better, dtype=torch.float64)
        if is_better:
            ask.keep(
                self.adapt,
                None,
                **stack_heads([result.head]),
                common=sums[:1],
                temperature=result.choice.temperature,
            )
        return notes

    # -- client side --------------------------------------------------------------------------

    @client.sum(
        "aggregates of numbers of labels of each class",
        returns={"counts": Count("classes", of="labels", is_together=True)},
        when=lambda self: (
            self.delta is None and (self.balance == "class" or self.learns_unlabeled)
        ),
        times=lambda self: (self.balance == "class") + self.learns_unlabeled,
    )
    def class_counts(self, view: View) -> Values:
        return {"counts": view.counts}

    @client.sum(
        "aggregates of labeled features",
        returns={"n": SUM_OF_WEIGHTS, "features": Real("features")},
        takes=lambda self: self.weight_kinds,
        when=lambda self: self.delta is None and self.passes == 2,
        weighted_by="labels",
    )
    def center(self, view: View, weights: Tensor | None = None) -> Values:
        rows = self.labeled(view, weights)
        return {"n": rows.s.sum(), "features": sum_features(rows.z, rows.s)}

    @client.sum(
        TOTALS,
        returns=lambda self: Products(is_weighted=self.has_weights),
        takes=lambda self: {
            **self.weight_kinds,
            **self.center_kinds,
        },
        when=lambda self: self.delta is None,
        reveals_parts=PARTS_SHOW,
    )
    def totals(
        self,
        view: View,
        weights: Tensor | None = None,
        center: Tensor | None = None,
    ) -> Values:
        """Return products of labeled examples; ``center`` (D,) is subtracted from the features."""
        return totals_of(self.labeled(view, weights), center)

    @client.sum(
        FOLD_TOTALS,
        returns=lambda self: Products("axes", self.has_weights, is_part=True),
        takes=lambda self: {
            "fold": Whole(upto=(FOLDS - 1,)),
            "axes": Optional(Real(("features", "axes")), self.reveal == "path"),
            **self.weight_kinds,
            **self.center_kinds,
        },
        when=lambda self: self.learns_unlabeled,
        times=FOLDS - 1,
        reveals_parts=PARTS_SHOW,
    )
    def fold_totals(
        self,
        view: View,
        fold: int,
        axes: Tensor | None = None,
        weights: Tensor | None = None,
        center: Tensor | None = None,
    ) -> Values:
        """Return products of the labeled examples of a fold, in coordinates of ``axes`` (D, r)."""
        rows = take_fold(self.labeled(view, weights), view.folds == fold)
        if axes is None:
            return totals_of(rows, center)
        away = rows.z.double()
        if center is not None:
            away = away - center
        return totals_of(rows._replace(z=away @ axes))

    @client.sum(
        "aggregates of products of all examples, labeled or not",
        returns=ExampleProducts(),
        takes=lambda self: self.center_kinds,
        when=lambda self: self.learns_unlabeled,
        reveals_parts=POOL_SHOWS,
        over="all",
    )
    def example_totals(self, view: View, center: Tensor | None = None) -> Values:
        """Return products of all examples; ``center`` as in ``totals``."""
        return sum_examples(view, feature_width(view), center)

    @client.keep(
        "nothing",
        takes={"directions": Real(("features", "directions"))} | MODELS,
        when=lambda self: self.learns_unlabeled,
    )
    def prepare(
        self, view: View, directions: Tensor, weight: Tensor, bias: Tensor
    ) -> Values:
        """Connect similar examples of the site, and predict their classes by models of labels.

        The result stays at the site.
        """
        check_linear_model(view)
        return {**prepare_examples(view, directions, weight, bias).store()}

    @client.sum(
        "aggregates of class probabilities of all examples by models of labels",
        returns={"guessed": SHARES, "smoothed": SHARES},
        takes={},
        when=lambda self: self.learns_unlabeled,
    )
    def anchor_shares(self, view: View) -> Values:
        """Return sums of the class probabilities that `prepare` stored, before and after a pass."""
        return sum_anchors(
            view,
            read_prepared(view.memory["prepare"]),
            one_hot(view.labels, view.classes).double(),
        )

    @client.sum(
        "aggregates of predicted class probabilities of all examples and of their products "
        "with features",
        returns={
            "smoothed": SHARES,
            "targets": SHARES,
            "cross": Real(("models", "features", "classes")),
        },
        takes=lambda self: {
            **MODELS,
            "wanted": SHARES,
            "shares": SHARES,
            **self.center_kinds,
        },
        when=lambda self: self.learns_unlabeled,
        times=PASSES,
    )
    def soft_labels(
        self,
        view: View,
        weight: Tensor,
        bias: Tensor,
        wanted: Tensor,
        shares: Tensor,
        center: Tensor | None = None,
    ) -> Values:
        """Return sums of the smoothed class probabilities of all examples, by several models."""
        check_linear_model(view)
        return sum_soft_labels(
            view,
            read_prepared(view.memory["prepare"]),
            one_hot(view.labels, view.classes).double(),
            find_known(view.folds, len(weight)),
            weight,
            bias,
            wanted=wanted,
            shares=shares,
            center=center,
        )

    @client.sum(
        "aggregates of losses on labeled examples that models have not seen",
        returns=replace(LOSSES, dims="kinds"),
        takes=lambda self: {
            **MODELS,
            **self.weight_kinds,
        },
        when=lambda self: self.learns_unlabeled,
    )
    def held_out(
        self,
        view: View,
        weight: Tensor,
        bias: Tensor,
        weights: Tensor | None = None,
    ) -> Values:
        """Return losses on held-out examples, by kind of models."""
        rows = self.labeled(view, weights)
        return sum_held_out(rows, view.folds, weight, bias)

    @client.sum(
        "aggregates of predicted class probabilities of all examples",
        returns={"shares": SHARES},
        takes=MODELS,
        when=lambda self: self.site_prior == "auto",
    )
    def class_shares(self, view: View, weight: Tensor, bias: Tensor) -> Values:
        """Return sums of the class probabilities of all examples, by several models."""
        check_linear_model(view)
        is_known = find_known(view.folds, len(weight))
        return {"shares": self._guess_known(view, is_known, weight, bias).sum(0)}

    @client.sum(
        "aggregates of losses on labeled examples that models have not seen",
        returns=replace(LOSSES, dims="kinds"),
        takes=lambda self: {**MODELS, "common": SHARES, **self.weight_kinds},
        when=lambda self: self.site_prior == "auto",
    )
    def held_out_prior(
        self,
        view: View,
        weight: Tensor,
        bias: Tensor,
        common: Tensor,
        weights: Tensor | None = None,
    ) -> Values:
        """Return losses on held-out examples, without the correction and with it."""
        is_known = find_known(view.folds, 1 + len(weight))[:, 1:]
        adapted = self._adapt_bias(view, is_known, weight, bias, common)
        rows = self.labeled(view, weights)
        both = torch.cat([weight, weight])
        return sum_held_out(rows, view.folds, both, torch.cat([bias, adapted]))

    @client.keep(
        "nothing",
        takes=lambda self: {**MODELS, "common": SHARES, "temperature": NonNegative()},
        when=lambda self: self.site_prior == "auto",
    )
    def adapt(
        self,
        view: View,
        weight: Tensor,
        bias: Tensor,
        common: Tensor,
        temperature: float,
    ) -> Values:
        """Correct the model by the class shares of the site; the result stays there."""
        check_linear_model(view)
        is_known = find_known(view.folds, 1)
        adapted = self._adapt_bias(view, is_known, weight, bias, common)
        head = LinearHead(weight[0], adapted[0])
        return {
            "w": flatten_head(head, temperature).to(view.weights.dtype),
            "stats": view.weights.new_zeros(0),
        }

    def _adapt_bias(
        self, view: View, is_known: Tensor, weight: Tensor, bias: Tensor, common: Tensor
    ) -> Tensor:
        """Return the biases of several models at this site; common: sums over all sites, (S, C)."""
        p = self._guess_known(view, is_known, weight, bias)
        shares = limit_shares(common)
        return adapt_bias(bias, estimate_shares(p, shares), shares)

    def _guess_known(
        self, view: View, is_known: Tensor, weight: Tensor, bias: Tensor
    ) -> Tensor:
        """Return class probabilities of all examples, (m, S, C), with labels that models know."""
        labels = one_hot(view.labels, view.classes).double()
        at = torch.searchsorted(view.positions_of("all"), view.positions_of("labeled"))
        return fix_labels(guess_all(view, weight, bias), at, labels, is_known)

    @client.sum(
        LEFT_OUT,
        returns=LOSSES,
        takes=lambda self: {**self.weight_kinds, **path_kinds()},
        when=lambda self: self.delta is None and self.reveal == "path",
    )
    def left_out(
        self,
        view: View,
        weights: Tensor | None = None,
        **path: Tensor,
    ) -> Values:
        """Return the leave-one-out losses of the solutions of the ``path``."""
        rows = self.labeled(view, weights)
        penalties = penalties_of(self.penalty)
        return losses_of(rows, Path(**path), penalties, is_class=view.classes > 0)

    @client.keep(
        "nothing",
        takes={"penalty": NonNegative(), "weights": Optional(NonNegative("classes"))}
        | path_kinds(),
        when=lambda self: self.label_ranks,
    )
    def rank_labels(
        self,
        view: View,
        penalty: float,
        weights: Tensor | None = None,
        **path: Tensor,
    ) -> Values:
        """Rank the labels of the site by leave-one-out predictions; the ranking stays there."""
        rows = self.labeled(view, weights)
        at, predicted = find_suspicious(
            rows, Path(**path), penalty, is_class=view.classes > 0
        )
        return {"rows": view.positions_of("labeled")[at], "predicted": predicted}

    def with_label_ranks(self) -> ClosedForm:
        """Return the algorithm with a ranking of labels at each site."""
        return replace(self, label_ranks=True)

    @client.sum(
        "aggregates of losses on labeled examples",
        returns=replace(LOSSES, dims=()),
        takes=lambda self: {
            "weight": Real(("features", "outputs")),
            "bias": Real("outputs"),
            "leverage": Share(),
            **self.weight_kinds,
        },
        when=lambda self: self.delta is None and self.reveal == "head",
    )
    def fitted(
        self,
        view: View,
        weight: Tensor,
        bias: Tensor,
        leverage: Tensor,
        weights: Tensor | None = None,
    ) -> Values:
        """Return the losses of one solution, with the mean leverage for every example."""
        rows = self.labeled(view, weights)
        head = LinearHead(weight, bias)
        squares = []  # by example, in blocks
        are_right = []
        log = torch.zeros(len(TEMPERATURES), dtype=torch.float64)
        for z, y, s in row_blocks(rows.z, rows.y, rows.s):
            away = (y - predict(z, head)) / (1 - leverage)
            away = away.clamp(-MOST_AWAY, MOST_AWAY)
            outputs = y - away
            squares.append(away.square().sum(1))
            if view.classes:
                are_right.append(outputs.argmax(1) == y.argmax(1))
                log = log_losses(outputs, y, s, before=log)
        squared = rows.s @ torch.cat(squares)
        if not view.classes:
            return {"squared": squared}
        return {
            "squared": squared,
            "right": rows.s @ torch.cat(are_right).double(),
            "log": log,
        }

    @client.sum(
        "aggregates of products of labeled examples and labels, with noise",
        returns={"rows": Count(of="labels"), "noisy": Real("noisy")},
        when=lambda self: self.delta is not None,
        release=True,
    )
    def noisy_totals(self, view: View) -> Release:
        """Return products of labeled examples of norm 1 at most, for the addition of noise.

        Their sensitivity to one example is derived at `adassp.SENSITIVITY`.
        """
        rows = self.labeled(view)
        n = float(len(rows.y))
        return Release(
            sum_products(rows.z, rows.y),
            sensitivity=SENSITIVITY,
            post=lambda noisy: {"rows": n, "noisy": noisy},
            delta=self.delta or torch.nan,  # declared with delta only
        )

    @client.keep(
        "nothing",
        takes=lambda self: {
            "penalty": NonNegative(),
            "temperature": NonNegative(),
            **self.weight_kinds,
        },
        when=lambda self: self.delta is None and self.local_head == "own",
    )
    def local(
        self,
        view: View,
        penalty: float,
        temperature: float,
        weights: Tensor | None = None,
    ) -> Values:
        """Solve for the site's own examples, with the global λ and T; the result stays at the site."""
        rows = self.labeled(view, weights)
        path = decompose(centered(add_up(rows.z, rows.y, rows.s)))
        head = head_of(path, penalty)
        return {
            "w": flatten_head(head, temperature).to(view.weights.dtype),
            "stats": view.weights.new_zeros(0),
        }

    def labeled(self, view: View, weights: Tensor | None = None) -> LabeledBlocks:
        """Return the labeled examples as features, which are read on demand."""
        check_linear_model(view)
        return read_labeled(view, weights, is_weighted=self.weighted)

    def deploy(self, state: State, memory: Mapping[str, State]) -> State:
        own = memory.get("adapt", state)
        return {name: own[name] for name in ("w", "stats")}


def count_calls(method: ClosedForm) -> int:
    """Return the largest number of exchanges of a cycle."""
    return sum(item.times for item in declared(method).values())


def note_self_training(result: SelfTrainingResult) -> State:
    """Return the selection as fields of a state that stay on the server side."""
    notes = note_choice(result.choice)
    notes["unlabeled"] = torch.tensor(result.weight, dtype=torch.float64)
    if result.gain is not None:
        notes["unlabeled_gain"] = torch.tensor(result.gain, dtype=torch.float64)
    return notes
