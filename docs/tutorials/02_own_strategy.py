"""
A strategy of your own
======================

A strategy is a class with a `select`: it sees one site's unlabeled rows through a view and says which
rows to have labeled.  It can be written in a notebook, and is compared like any other.
"""

# %%
# Expected length of the gradient of the last layer (after Settles, 2007), in its simplest form:
# how far a row's probabilities are from any label, times how long its features are.
import torch

import fallow as fl


class EGL(fl.Strategy):
    """Rows whose label would move the model most."""

    power: float = 1.0
    contract = fl.Contract(
        title="EGL",
        paper="Settles, 2007",
        keep={"select": "number of picks"},
        needs=["local"],
    )

    def select(self, view, n):
        """The n rows with the longest expected gradient."""
        probabilities = view.logits("local").softmax(1)  # (pool, C)
        spread = (probabilities * (1 - probabilities)).sum(1)
        length = view.embed("local").norm(dim=1) ** self.power
        return fl.Picks(torch.topk(spread * length, n).indices)


# %%
# Beside random rows, in a federation with skewed classes.
digits = fl.load("digits")
federation = fl.Federation(digits, fl.Dirichlet(alpha=0.3), sites=5)
study = fl.compare(
    federation,
    [fl.Random(), EGL(), fl.Margin()],
    seeds=3,
    cycles=2,
    initial=0.05,
    budget=0.05,
    training="fedavg",
    rounds=5,
)
study.table()

# %%
# The same class picks rows from plain arrays, with the model of a run or any module of your own.
run = fl.run(
    federation,
    strategy=EGL(),
    cycles=1,
    initial=0.05,
    budget=0.05,
    training="fedavg",
    rounds=5,
)
x, y = digits.x[:200].flatten(1), digits.y[:200]
fl.select(x[50:], EGL(), labeled=(x[:50], y[:50]), model=run.model, n=5)
