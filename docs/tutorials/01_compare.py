"""
Compare strategies on a table of your own
=========================================

Which rows should be labeled next?  Several strategies answer, on the same rows, with the same first
labels, and a paired test says whether they differ.
"""

# %%
# A table with a column of labels and one that says whose row it is.  Here it is made up.
import numpy as np
import pandas as pd

import fallow as fl

draw = np.random.default_rng(0)
rows = 600
age = draw.normal(54, 12, rows)
pressure = draw.normal(130, 18, rows)
risk = 0.08 * (age - 54) + 0.05 * (pressure - 130) + draw.normal(0, 0.7, rows)
table = pd.DataFrame(
    {
        "age": age.round(),
        "pressure": pressure.round(),
        "smoker": draw.choice(["yes", "no"], rows),
        "hospital": draw.choice(["basel", "bern", "zug"], rows),
        "ill": np.where(risk > 0, "yes", "no"),
    }
)
table.head()

# %%
# `fl.from_frame` says how it read each column.
data = fl.from_frame(table, label="ill", site="hospital")
for note in data.notes:
    print(note)
print(data.columns, len(data.x), "rows to choose from,", len(data.x_test), "to test on")

# %%
# Each hospital is a site.  Two strategies, three paired seeds.  The default training
# algorithm is a closed-form classifier; `training="fedavg", model="mlp"` trains a network.
federation = fl.Federation(data, fl.Natural())
study = fl.compare(
    federation,
    [fl.Random(), fl.Margin()],
    seeds=3,
    cycles=3,
    initial=0.05,
    budget=0.05,
)
study.table()

# %%
# A learning curve for each; three seeds are too few for a test, and the study says so.
study.plot()
