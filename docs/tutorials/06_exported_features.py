"""
Would active learning have helped?
==================================

You train your own network. Export its features once to estimate how many labels active learning
would save, without changing your code.
"""

# %%
# Export features
# ---------------
#
# Write a row per labeled example: the input of the last layer, label and site. Here principal
# components stand in.
import pandas as pd
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

import fallow as fl

images, label = load_digits(return_X_y=True)
frame = pd.DataFrame(PCA(32, random_state=0).fit_transform(images)).add_prefix("z")
frame["label"] = [f"digit {number}" for number in label]
frame["hospital"] = ["north" if n % 4 else "south" for n in label + frame.index % 2]
frame.to_csv("features.csv", index=False)

# %%
# Compare strategies
# ------------------
#
# A fifth of each hospital is the test set. Each strategy acquires ten labels per hospital and cycle.
data = fl.load("features.csv", label="label", site="hospital")
study = fl.compare(
    fl.Federation(data, fl.Natural()),
    ["random", "margin", "typical-unsure"],
    encoder="identity",
    seeds=3,
    initial=10,
    budget=10,
    cycles=8,
)
study.plot()

# %%
# Read the labels to a target
# ---------------------------
#
# For each strategy, the smallest number of labels whose mean accuracy reaches the target. A strategy
# that is missing does not reach it.
target = 0.8
curve = study.records.groupby(["strategy", "cycle"])[["labeled", "accuracy"]].mean()
reached = curve[curve["accuracy"] >= target]
reached.groupby("strategy")["labeled"].min().round()

# %%
# The table tests the differences at the end:
study.table()

# %%
# Use seven seeds or more with your data. Features stay as they are here; your network would learn
# better ones with more labels.
#
# .. code-block:: bash
#
#    fallow compare features.csv --label label --site hospital --seeds 7 --out runs/curve \
#        --strategy random,margin,typical-unsure --set encoder=identity
#
# To select by the network's own predictions, add columns ``prediction:CLASS`` and set
# ``training=none`` (:doc:`/cases`).
from pathlib import Path

Path("features.csv").unlink()
