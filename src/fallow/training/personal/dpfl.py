"""DPFL (Kharrat, Canini, Horváth, 2025), Algorithms 1-3: decentralized collaboration.

Each site selects the models that it averages with its own by the reward of the average on its
validation examples.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, final

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fallow.core import client
from fallow.core.ask import Ask
from fallow.core.contract import Contract
from fallow.core.fit_declarations import Fit, FitDeclaration
from fallow.core.limits import Conflict, NonNegativeFinite, NonNegativeInt, PositiveInt
from fallow.core.local import Batch, Learner, TrainState
from fallow.core.methods import Load
from fallow.core.step_training import StepTraining
from fallow.core.suggestions import explain_constructor, refuse_unused
from fallow.core.training_config import TrainingConfig, TrainingStage
from fallow.core.types import SiteId, State, Values
from fallow.core.values import Count, Flag, Indices, Mask, Model, Real, Text, Whole
from fallow.core.view import View
from fallow.training.personal.base import model
from fallow.training.personal.parts import graphs, greedy, server_side
from fallow.training.personal.parts.greedy import (
    Greedy,
    Member,
    Reward,
    begin,
    remember_gains,
)


def own_model(view: View) -> Member:
    """Return the model of the site after local training, and its number of labels."""
    return Member(view.memory["local"]["w"], len(view.labels))


def load_models(view: View) -> list[Member]:
    """Return the models of the last relay, in the order of the names of their senders."""
    models = [
        view.memory[name] for name in sorted(view.memory) if name.startswith("model/")
    ]
    return [Member(peer["w"], float(peer["labels"])) for peer in models]


def load_search(view: View) -> Greedy:
    """Return the state of the selection after the last batch."""
    kept = view.memory["search"]
    return Greedy._make(kept[name] for name in Greedy._fields)


def draw_order(view: View, candidates: int, purpose: str) -> Tensor:
    """Draw the order of the candidates at the site, (m,)."""
    return torch.randperm(candidates, generator=view.stream(purpose))


def begin_search(view: View, candidates: int, room: int, turn: int, rounds: int) -> Greedy:
    """Begin a selection, with an order and coins drawn by the site.

    rounds: number of rounds of the main loop whose gains are averaged with those of this selection.
    """
    order = draw_order(view, candidates, f"ggc order {turn}")
    gen = view.stream(f"ggc coins {turn}")
    coins = torch.rand(candidates, dtype=torch.float64, generator=gen)
    past = None
    # turn 0 is preprocessing, 1 the first selection
    if turn >= 2 and "search" in view.memory:
        past = remember_gains(load_search(view), candidates, rounds)
    return begin(own_model(view), order, coins, room, past)


def reward(view: View, by_row: bool = False) -> Reward:
    """Return minus the mean cross-entropy on the validation examples of the site.

    Examples have the weights of the query strategy.  ``by_row``: return the term of each example.
    The reward is 0 without examples.
    """
    rows = view.rows("validation")
    labels = view.validation_labels
    local = view.memory["local"]
    share = view.validation_weights.double()
    share = share / share.mean()  # (v,)
    if rows.ndim == 4:  # memory layout for convolutions on the CPU
        rows = rows.contiguous(memory_format=torch.channels_last)

    def of(w: Tensor) -> float | Tensor:
        if len(labels) == 0:
            return 0.0
        outputs = view.forward({**local, "w": w.to(local["w"].dtype)}, rows).double()
        earned = -share * cross_entropy(outputs, labels, reduction="none")
        if by_row:
            return earned
        return earned.mean()

    return of


Graph = Literal[
    "ggc", "symmetric-or", "symmetric-and", "degree", "static", "resampled", "full"
]
LARGEST_LOSS = 1e6
"""Largest mean cross-entropy that a site reports; worse averages count as equally bad."""
SEARCHED = ("ggc", "symmetric-or", "symmetric-and", "degree")
"""Graphs that use GGC; the others are drawn or fixed."""

OF_SEARCH = ("period", "between", "guard", "gain_tol", "gate", "smooth")
"""Fields of GGC, which other graphs do not use."""

STATE = (
    "reach",
    "begin",
    "omega",
    "graph",
    "refused",
    "evaluations",
    "conflicts",
    "broke",
    "guarded",
    "can_judge",
)


@explain_constructor
@final
@dataclass(frozen=True)
class DPFL(StepTraining):
    """Average each site's model with those of selected collaborators.

    The personalized model ŵ_k is the average, weighted by labels, of the models of site k and its
    collaborators C_k.  Preprocessing trains ``tau_init`` epochs from the common start.  BGGC then
    selects candidates Ω_k from all sites in reach, in batches of ``budget`` models and two passes.
    Every round trains the epochs of the training configuration, and in every ``period``-th round
    GGC selects C_k from Ω_k.  The reward is minus the mean cross-entropy on the validation examples
    of the site, with the weights of the query strategy, so that examples that were not drawn
    uniformly represent the whole pool.  Data do not leave a site; models are sent from site to
    site, and the coordinator learns which site selected which.

    Parameters
    ----------
    budget : int or sequence of int, optional
        Maximum number of models that a site averages, for all sites or one per site, in the order
        of their names.  None: all.  1 is exactly local training if ``counts_self`` is True.
    counts_self : bool
        Include the site's own model in ``budget``, as in the paper's algorithms.
    tau_init : int, optional
        Number of epochs of preprocessing.  None: twice the epochs of the training configuration, as
        in the paper.
    period : int
        Number of rounds between selections (P).
    between : {"reuse", "local"}
        Rounds without GGC average the last C_k, or do not average.
    guard : {"off", "loop"}
        "loop": a site whose average has a lower reward than its own model does not average in that
        round.
    gain_tol : float
        Gains below it count as 0.
    gate : float
        Number of standard errors over validation examples that a gain must exceed.  With fewer than
        8 examples, no gain counts, so all candidates are averaged.
    smooth : int
        Number of selections over which the gains of the last collaborators are averaged.
    graph : str
        Graph of collaborators: "ggc", or a control.  "symmetric-or" and "symmetric-and" make the
        graph symmetric after every round.  "degree" draws as many random peers as GGC selects.
        "static" draws a full budget once, "resampled" in every round.  "full" averages all sites in
        reach, regardless of the budget.
    reach : str or sequence
        Sites from which a site may receive models: "all", "ring-k" (k neighbors on either side),
        "random-k" (k drawn by the site), or the indices of these sites for every site.
    alone : sequence of str
        Names of sites that send their models and do not average.  In an experiment configuration,
        "flipped" denotes the sites with wrong labels.

    Notes
    -----
    *Rounds.*  Preprocessing is round 0 and corresponds to ceil(tau_init / epochs) rounds; the
    others of these are idle.  A run of T rounds therefore has that many fewer rounds in the main
    loop.  Preprocessing runs again in every cycle.  With ``restart=continue``, sites continue from
    their last averages, and preprocessing is one round of training and new candidates.

    *Special cases.*  The break ends both loops of Algorithm 3.  If neither side gains, a candidate
    joins: a site without validation examples takes peers in random order until the budget is full.
    If no site has any, the run is rejected.  A peer with a non-finite model or without labels is
    excluded from all averages and recorded in ``state["refused"]``, (N,).  A site without labels
    has weight 0 in its own average.  Batches count in full.

    *Smoothing.*  Gains are averaged instead of rewards, which depend on the models of a round.

    *Queries.*  A site stores which of the available models are in its average (``peers``).  After
    preprocessing in several batches, none is available.

    *State.*  The state contains ``graph`` and ``omega`` (N, N), where row k marks the sites from
    which site k receives.  For the last selection of each site it contains the number of
    evaluations, the ``conflicts`` in which both gains were positive, and whether the budget or the
    guard ended it.  Gains stay in ``memory["search"]``.

    *Controls.*  "degree" uses the numbers of a GGC in the same run.  "symmetric-or" drops the added
    links with the smallest rewards beyond a budget, so some stay one-way.  Both send models a
    second time.  Random graphs and "full" exchange nothing in preprocessing.

    *Differences.*  The public code averages in place, site after site, in rounds with GGC only.  It
    also clips the norm of gradients at 20, decays the learning rate by 0.998 every 10 rounds, has
    a weight decay of 1e-4 where the paper prints 1e-3, and keeps the momentum of a site over all
    rounds.  The experiment configurations follow the paper: no clipping, no decay of the rate,
    1e-3, and momentum from zero in every round.  Flipped labels are y -> C - 1 - y for C classes, as
    in the public code; the paper names no permutation.

    References
    ----------
    Kharrat, Canini, Horváth. Decentralized Personalized Federated Learning. 2025.

    Examples
    --------
    >>> import fallow as fl
    >>> federation = fl.Federation("iris", fl.IID(), sites=3)
    >>> two = fl.DPFL(budget=2)  # itself and one more
    >>> fl.run(federation, training=two, model="mlp", cycles=0, rounds=4, validation=0.3)
    Run(random on iris, seed 0: 1 phases, 12 labels, accuracy 0...)
    """

    budget: int | Sequence[int] | None = None  # B_c
    counts_self: bool = True
    tau_init: NonNegativeInt | None = (
        None  # epochs; None: twice the training configuration's, as in the paper
    )
    period: PositiveInt = 1  # P
    between: Literal["reuse", "local"] = "reuse"
    guard: Literal["off", "loop"] = "off"
    gain_tol: NonNegativeFinite = 0.0  # gains below it count as 0
    gate: NonNegativeFinite = (
        0.0  # standard errors over validation examples that a gain must exceed
    )
    smooth: PositiveInt = (
        1  # selections over which the gains of the last collaborators are averaged
    )
    graph: Graph = "ggc"
    reach: graphs.Reach = "all"
    alone: Sequence[SiteId] = ()

    CONFLICTS = (
        Conflict(
            ("counts_self", "budget"),
            lambda counts_self, budget: not counts_self and budget is None,
            ", so counts_self has no effect; set budget or omit counts_self",
        ),
        Conflict(
            ("between", "period"),
            lambda between, period: between == "local" and period == 1,
            ", so there is no round between two selections; set period=2 or more, or omit between",
        ),
    )
    contract: ClassVar[Contract] = Contract(
        title="DPFL",
        paper="Decentralized Personalized Federated Learning",
        year=2025,
        authors="Kharrat, Salma and Canini, Marco and Horváth, Samuel",
        secure_sum=False,  # a site evaluates the model of every peer
        everyone=True,
        fit=FitDeclaration(
            {"local": Fit(by=lambda training, _: training.configs)}, server=STATE
        ),
        options=("fresh_first",),
        site_lists=("alone",),
        missing="stops: the graph is over all sites",
        no_batch_norm="batch-norm statistics are wrong for averaged models; choose a "
        "model without batch norm, such as lenet",
        regression=False,
    )

    def check(self) -> None:
        server_side.ChoiceLimits.check(self.budget, self.counts_self)
        graphs.parse(self.reach)
        refuse_unused(self, *OF_SEARCH, switch="graph", used_with=SEARCHED)
        averages_some = (*SEARCHED, "static", "resampled")
        refuse_unused(
            self, "budget", "counts_self", switch="graph", used_with=averages_some
        )

    # -- server side ------------------------------------------------------------------------

    def round(self, state: State, ask: Ask) -> State:
        # a cycle that continues from the last averages
        if ask.round == 0 and "omega" in state:
            state = self.resume(state, ask)
        elif ask.round == 0:
            state = self.prepare(state, ask)
        t = ask.round - int(state["begin"])
        if t < 0:  # preprocessing covers this round too
            return state
        return {**state, **self.main(state, ask, t)}

    def prepare(self, state: State, ask: Ask) -> State:
        """Run lines 1-4: epochs from the common start, then the candidates Ω of each site."""
        state = model(state)
        first, _ = self.configs
        ask.fit(first, "local", None, **state)
        reach = server_side.reachable(ask, self.functions, self.reach, self.alone)
        state |= {"reach": reach, "omega": reach, "graph": reach}
        state["begin"] = torch.tensor(self.begin)
        if self.graph in SEARCHED:
            return {**state, **self.candidates(reach, ask)}
        if self.graph == "static":
            once = server_side.draw_peers(
                ask, self.functions, reach, self.limits(ask).room, "static graph"
            )
            state |= {"omega": once, "graph": once}
        ask.keep(self.average, of="own")
        return state

    def resume(self, state: State, ask: Ask) -> State:
        """Continue in the next cycle from the last averages: one round, then new candidates."""
        if self.graph not in SEARCHED:
            return {**state, "begin": torch.tensor(0)}
        _, from_average = self.configs
        ask.fit(from_average, "local")
        return {**state, **self.candidates(state["reach"], ask), "begin": torch.tensor(1)}

    def candidates(self, reach: Tensor, ask: Ask) -> State:
        """Select Ω by BGGC among all sites in reach; the first average is over them."""
        match = server_side.search(ask, self.functions, reach, self.limits(ask), turn=0)
        if match["graph"].any() and not match["can_judge"].any():
            raise ValueError(
                "DPFL selects by the loss on validation examples and no site has any; "
                "set validation=0.2, so that a part of the labels is held out"
            )
        ask.keep(self.average, of="search")
        return {**match, "omega": match["graph"]}

    def main(self, state: State, ask: Ask, t: int) -> State:
        """Run round ``t`` of the main loop (from line 5): training, then new averages."""
        _, from_average = self.configs
        ask.fit(from_average, "local")
        reach = state["reach"]
        if self.graph == "resampled":
            room = self.limits(ask).room
            drawn = server_side.draw_peers(
                ask, self.functions, reach, room, f"random graph {t}"
            )
            return self.mix(ask, drawn)
        if self.graph not in SEARCHED:
            return self.mix(ask, state["omega"])
        if t % self.period != 0 and self.between == "reuse":
            return self.mix(ask, state["graph"])
        if t % self.period != 0:
            nobody = torch.zeros_like(state["graph"])
            return self.mix(ask, nobody)
        match = server_side.search(
            ask, self.functions, state["omega"], self.limits(ask), turn=t + 1
        )
        if self.graph == "ggc":
            # X is already available: no model is sent again
            ask.keep(self.average, of="search")
            return match
        control = self.control_graph(match["graph"], reach, ask, t)
        return {**match, **self.mix(ask, control)}

    def control_graph(self, chosen: Tensor, reach: Tensor, ask: Ask, t: int) -> Tensor:
        """Return the graph of a control from the graph of GGC.  (N, N), (N, N) -> (N, N)"""
        if self.graph == "symmetric-and":
            return chosen & chosen.T
        if self.graph == "symmetric-or":
            return server_side.link_both_ways(
                ask, self.functions, chosen, reach, self.limits(ask)
            )
        return server_side.draw_peers(
            ask, self.functions, reach, chosen.sum(1), f"random graph {t}"
        )

    def mix(self, ask: Ask, graph: Tensor) -> State:
        """Send the models of their peers to the sites, which average them with their own (Eq. 4)."""
        rows = graphs.peers(graph, ask.cohort)
        if rows:
            ask.relay(self.model, rows)
        to: dict[SiteId, Values] = {}
        for site in ask.cohort:
            to[site] = {"of": "own"}
            if site in rows:
                to[site] = {"of": "received"}
        ask.keep(self.average, to=to)
        return {"graph": graph}

    @property
    def configs(self) -> tuple[TrainingConfig, TrainingConfig]:
        """Return the training configurations of preprocessing, and of the main loop."""
        first = replace(self.training_config, stages=(TrainingStage(self.first_epochs),))
        return first, replace(self.training_config, start="average")

    @property
    def first_epochs(self) -> int:
        """Return the number of epochs of preprocessing."""
        if self.tau_init is None:
            return 2 * self.training_config.epochs
        return self.tau_init

    @property
    def begin(self) -> int:
        """Return the first round of the main loop, the number of rounds that preprocessing covers."""
        return math.ceil(self.first_epochs / max(self.training_config.epochs, 1))

    @property
    def functions(self) -> server_side.ChoiceFunctions:
        """Return the client functions by which sites choose collaborators."""
        return server_side.ChoiceFunctions(
            order=self.order,
            model=self.model,
            search=self.search,
            choices=self.choices,
            weigh=self.weigh,
        )

    def limits(self, ask: Ask) -> server_side.ChoiceLimits:
        return server_side.ChoiceLimits.of(self.budget, self.counts_self, ask.cohort)

    def load(self, sites: int, rounds: int, resumed: bool = False) -> Load:
        names = [str(k) for k in range(sites)]
        before = self.begin  # rounds that preprocessing covers
        if resumed:
            before = int(self.graph in SEARCHED)
        return server_side.load(
            graph=self.graph,
            reach=graphs.count_reachable(self.reach, sites),
            limits=server_side.ChoiceLimits.of(self.budget, self.counts_self, names),
            rounds=max(rounds - before, 0),
            period=self.period,
            reuses=self.between == "reuse",
        )

    # -- client side --------------------------------------------------------------------------

    @client.relay(
        "the site's model, sent to the sites that evaluate or average it",
        returns={"w": Model(), "labels": Count(of="labels")},
        times=0,
    )
    def model(self, view: View) -> Values:
        return {"w": view.memory["local"]["w"], "labels": float(len(view.labels))}

    @client.each(
        "a random order of the site's peers",
        returns={"order": Indices("candidates")},
        takes={"candidates": Whole(upto=("sites",)), "purpose": Text()},
        times=0,
    )
    def order(self, view: View, candidates: int, purpose: str) -> Values:
        return {"order": draw_order(view, candidates, purpose)}

    @client.keep(
        "number of stored tensors",
        takes={
            "candidates": Whole(upto=("sites",)),
            "room": Whole(upto=("rows", "sites")),
            "turn": Whole(),
        },
        times=0,
    )
    def search(self, view: View, candidates: int, room: int, turn: int) -> Values:
        """Process one batch of models: pass 1 adds them to Y, pass 2 decides on them."""
        own = own_model(view)
        peers = load_models(view)  # in the order of their names
        last_turn = int(view.memory.get("search", {}).get("turn", -1))
        if last_turn == turn:
            g = load_search(view)
        else:
            g = begin_search(view, candidates, room, turn, self.smooth - 1)

        is_second_pass = int(g.added) == candidates
        if not is_second_pass:
            g = greedy.add(g, peers)
        if is_second_pass or len(peers) == candidates:  # there may be a single batch
            # positions of the models of this batch
            visits = g.order[g.at : g.at + len(peers)]
            ranks = visits.argsort().argsort()  # of each visit among the available names
            batch = [peers[i] for i in ranks]
            earned = reward(view, by_row=self.gate > 0)
            g = greedy.decide(g, own, batch, earned, self.gain_tol, self.gate)
        return {"turn": turn, **g._asdict()}

    @client.each(
        "the sites whose models the site selected or rejected, and the number of "
        "evaluations",
        returns={
            "chosen": Mask("candidates"),
            "refused": Mask("candidates"),
            "full": Flag(),
            "evaluations": Count(of="sites", times=2),  # two, and two per candidate
            "conflicts": Count(of="sites"),
            "broke": Flag(),
            "guarded": Flag(),
            "can_judge": Flag(),
        },
        times=0,
    )
    def choices(self, view: View) -> Values:
        before = load_search(view)
        g = self.choice(view)
        return {
            "chosen": g.chosen,
            "refused": g.refused,
            "full": before.is_full,
            "evaluations": g.evaluations,
            "conflicts": g.conflicts,
            "broke": before.broke,
            "guarded": not torch.equal(g.chosen, before.chosen),
            "can_judge": len(view.validation_labels) > 0,
        }

    @client.each(
        "the reward of the site's average with one more model",
        returns={"rewards": Real("candidates", bound=LARGEST_LOSS)},
        times=0,
    )
    def weigh(self, view: View) -> Values:
        peers = load_models(view)
        g = self.choice(view)
        rewards = greedy.with_each(g, own_model(view), peers, reward(view))
        return {"rewards": rewards.clamp(-LARGEST_LOSS, LARGEST_LOSS)}

    @client.keep(
        "number of stored tensors",
        takes={"of": Text(("own", "search", "received"))},
        times=0,
    )
    def average(self, view: View, of: Literal["own", "search", "received"]) -> Values:
        """Return the new model of the site, and which available models are in it, (available,)."""
        own = own_model(view)
        at_hand = load_models(view)
        w = own.w
        peers = torch.zeros(len(at_hand), dtype=torch.bool)
        if of == "search" and "search" in view.memory:
            g = self.choice(view)
            w = greedy.average_chosen(g, own)
            if len(g.chosen) == len(at_hand):  # all candidates are available
                peers = g.chosen
        elif of == "received":
            w = greedy.mean(own, at_hand)
            peers = torch.tensor([peer.is_usable for peer in at_hand])
        return {"w": w, "stats": view.memory["local"]["stats"], "peers": peers}

    def choice(self, view: View) -> greedy.Greedy:
        """Return the final X; in the main loop, the guard may leave the site alone."""
        g = load_search(view)
        is_main = int(view.memory["search"]["turn"]) > 0
        if self.guard == "loop" and is_main:
            return greedy.stay_alone_if_better(g, own_model(view))
        return g

    def deploy(self, state: State, memory: Mapping[str, State]) -> State:
        return memory.get("local", model(state))

    def start(self, w: TrainState, own: dict[str, TrainState]) -> dict[str, TrainState]:
        return {"w": w}

    def step(
        self, s: dict[str, TrainState], w_t: TrainState, b: Batch, learn: Learner
    ) -> dict[str, TrainState]:
        return {"w": learn.descend(s["w"], b)}

    def finish(self, s: dict[str, TrainState]) -> tuple[TrainState, dict[str, TrainState]]:
        return s["w"], {}
