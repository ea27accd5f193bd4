"""
First comparison in five minutes
================================

Compare query strategies on data that are distributed over several sites. You need an installed
Fallow (:doc:`/installing`) and no data of your own.

Active learning selects the examples that an annotator labels next. In federated learning, the
examples stay at sites, such as hospitals. This tutorial simulates ten sites and asks which strategy
reaches a given accuracy with the fewest labels.
"""

# %%
# Load data
# ---------
#
# ``fl.load`` reads a named dataset. The digits come with Fallow: 1,438 images of 8 x 8 pixels to
# select from and 359 to test on.
import fallow as fl

digits = fl.load("digits")
print(tuple(digits.x.shape), digits.classes)

# %%
# Simulate heterogeneous sites
# ----------------------------
#
# A partition distributes the examples over sites.  ``Dirichlet`` gives every site its own mix of
# classes (non-IID data).  A smaller ``alpha`` means stronger heterogeneity.
federation = fl.Federation(digits, fl.Dirichlet(alpha=0.1), sites=10)
federation.counts()

# %%
# Compare strategies
# ------------------
#
# ``fl.compare`` takes the federated dataset and a list of strategies. Every strategy runs with the
# same seeds, so partition, initial labeled set and test examples are identical.
#
# * ``initial=0.02``: 2 % of the examples are labeled at the start.
# * ``budget=0.02``: each cycle acquires labels for another 2 %.
# * ``cycles=3``: query, label and train again three times.
#
# The default training algorithm is a closed-form classifier.  It needs no hyperparameters.
study = fl.compare(
    federation,
    [fl.Random(), fl.Margin(), fl.TypicalUnsure()],
    seeds=3,
    initial=0.02,
    budget=0.02,
    cycles=3,
)
study.table()

# %%
# Read the result
# ---------------
#
# The table shows the mean final accuracy and its standard deviation over seeds, and the paired
# difference from random sampling. Three seeds are too few for a test. With seven seeds or more, the
# column of p values can reach 0.05, after Holm's correction for several comparisons.
#
# A learning curve shows the accuracy for every number of labels.  The shaded band is one standard
# deviation over seeds.
study.plot()

# %%
# A strategy with a steeper curve needs fewer labels for the same accuracy. At the right end the
# curves meet, because all strategies then have enough labels.

# %%
# Train a network instead
# -----------------------
#
# ``lr``, ``epochs`` and ``batch_size`` are hyperparameters of local training (:doc:`/train`). If
# a warning states that training has not converged, raise ``rounds``, as five are few.
networks = fl.compare(
    federation,
    ["random", "margin"],
    training=fl.FedAvg(lr=0.1, epochs=2, batch_size=32),
    model="mlp",
    rounds=5,
    seeds=2,
    initial=0.05,
    budget=0.05,
    cycles=1,
)
networks.table()

# %%
# Look at one run
# ---------------
#
# A study consists of runs, one per strategy and seed.  A run has a trained model and records.
run = study.run("margin", seed=0)
print(run.predict(digits.x_test[:5]), digits.y_test[:5].numpy())
run.records[["cycle", "labeled", "accuracy"]]

# %%
# ``run.revealed`` lists what each site disclosed to the coordinator: the kind of every exchange and
# its bytes. Examples are not sent as they are, but can be computed from exact sums
# (:doc:`/privacy`).
run.revealed.head()

# %%
# The same on the command line
# ----------------------------
#
# .. code-block:: bash
#
#    fallow compare demo --strategy random,margin,typical-unsure --seeds 3 --out runs/first
#
# The command writes ``runs/first/report.html`` with curves, tests and disclosures. For a table of
# your own, write ``fallow compare patients.csv --label outcome --site hospital``.
#
# Next: :doc:`/load-data`, :doc:`/choose-strategy`, or :doc:`/three-sites` with annotators.
