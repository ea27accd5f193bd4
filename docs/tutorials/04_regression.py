"""
Regression
==========

Predict numbers instead of classes. Few query strategies improve on random sampling in regression,
so this tutorial shows how to find out whether one does on your data.
"""

# %%
# Load a table
# ------------
#
# ``fl.from_frame`` reads a DataFrame. Labels with decimals are read as regression targets. The
# labels of the diabetes data of scikit-learn are whole numbers (disease progression after one
# year), so ``task`` states what they are.
import pandas as pd
from sklearn.datasets import load_diabetes

import fallow as fl

frame = load_diabetes(as_frame=True).frame
frame["clinic"] = pd.cut(frame["age"], 4, labels=["a", "b", "c", "d"]).astype(str)
data = fl.from_frame(frame, label="target", site="clinic", task="regression")
for note in data.notes:
    print(note)
print(data.task, len(data.x), "examples to select from,", len(data.x_test), "to test on")

# %%
# Sites that differ
# -----------------
#
# ``fl.Natural()`` uses the column of sites. The clinics differ in age, so their data are not
# identically distributed (feature heterogeneity). For a dataset without sites,
# ``fl.TargetDirichlet`` simulates sites with different ranges of the target.
federation = fl.Federation(data, fl.Natural())
federation.sizes()

# %%
# Compare strategies
# ------------------
#
# Strategies such as margin and entropy need classes and are refused here. These work for
# regression: ``random``, ``badge``, ``core-set``, ``lcmd``, ``bait``, ``acs-fw``, ``logo``,
# ``fale`` and ``pivotal``.
#
# The default training algorithm is a closed-form regressor (ridge regression) on random Fourier
# features. For a table with few columns, few features are enough.
study = fl.compare(
    federation,
    ["random", "badge", "core-set"],
    encoder=fl.Fourier(features=128),
    seeds=3,
    initial=0.1,
    budget=0.1,
    cycles=3,
)
study.table()

# %%
# Scores are mean squared errors in units of the variance of the training targets. An error of 1 is
# that of always predicting the mean, and lower is better. Columns and targets are standardized with
# aggregates of all sites, so no site needs to disclose its values.
study.plot()

# %%
# If no curve is clearly below that of random sampling, use random sampling: its labels are also a
# random sample that you can test on.
# Select the whole budget at once
# -------------------------------
#
# ``pivotal`` and ``fale`` choose by leverage, before any label is known. They are made for linear
# models and use weighted least squares at the server. Use them if you have a fixed number of labels
# and one opportunity to acquire them.
one_pass = fl.compare(
    federation,
    ["random", "pivotal"],
    training="server-solve:ridge=0.0001",
    model="linear",
    seeds=3,
    initial=0,
    budget=20,
    cycles=2,
)
one_pass.table()

# %%
# Here ``budget=20`` is a number of labels per site and cycle. In nine larger tables, ``pivotal``
# was better than random sampling in 48 of 90 cells and worse in none (:doc:`/results`).
#
# Predict and measure
# -------------------
#
# ``predict`` returns numbers in the units of the target.
run = study.run("random", seed=0)
predicted = run.predict(data.x_test)
predicted[:5].round(1)

# %%
# Any metric of scikit-learn can be computed from predictions:
from sklearn.metrics import mean_absolute_error, r2_score

truth = data.y_test.numpy().ravel()
print(
    f"R2 {r2_score(truth, predicted):.2f}, MAE {mean_absolute_error(truth, predicted):.1f}"
)
