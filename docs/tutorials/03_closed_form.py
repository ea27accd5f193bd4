"""
A head in closed form
=====================

Sites whose classes differ pull a common model apart when they train in turns. A linear head on
features that are computed once can be solved for from totals over sites instead: the result
does not depend on who holds which rows.
"""

# %%
# Ten sites with mostly a few digits each, and the same rows dealt out evenly.
import fallow as fl

digits = fl.load("digits")
skewed = fl.Federation(digits, fl.Dirichlet(alpha=0.05), sites=10)
even = fl.Federation(digits, fl.IID(), sites=10)
skewed.counts()

# %%
# The same labels, trained both ways.
labels = {"cycles": 1, "initial": 0.1, "budget": 0.05}
settings = {"seeds": 2, **labels, "training": "fedavg", "rounds": 15}
strategies = ["random", "random@training=closed-form"]
in_skew = fl.compare(skewed, strategies, **settings)
in_skew.table()[["strategy", "mean", "sd"]]

# %%
in_even = fl.compare(even, strategies, **settings)
in_even.table()[["strategy", "mean", "sd"]]

# %%
# The closed form also knows how good it is without a test set: each labeled row was left out once.
run = fl.run(skewed, strategy="margin", training="closed-form", cycles=2, budget=0.05)
run.records[["cycle", "accuracy", "left_out"]]
