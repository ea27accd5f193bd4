"""
Free text at several sites
==========================

Compare query strategies on a table with a column of free text, such as reports or clinical notes.
"""

# %%
# Make reports
# ------------
#
# These 600 fictitious maintenance reports come from three plants. Each plant has its own mix of
# faults, and some symptoms are rare.
import numpy as np
import pandas as pd

import fallow as fl

symptoms = {
    "electrical": ["fuse blown", "no power", "cable burnt", "relay stuck", "display dark"],
    "hydraulic": ["oil leak", "low pressure", "hose cracked", "valve stuck", "slow lift"],
    "mechanical": [
        "noisy bearing",
        "belt slips",
        "bent shaft",
        "worn gear",
        "loose display",
    ],
}
mixes = {"north": [0.7, 0.2, 0.1], "south": [0.1, 0.7, 0.2], "west": [0.2, 0.1, 0.7]}
draw = np.random.default_rng(0)
rows = []
for number in range(600):
    plant = draw.choice(list(mixes))
    fault = draw.choice(list(symptoms), p=mixes[plant])
    symptom = draw.choice(symptoms[fault], p=[0.4, 0.3, 0.15, 0.1, 0.05])
    rows.append((f"{draw.choice(['pump', 'press'])} {number}: {symptom}", fault, plant))
frame = pd.DataFrame(rows, columns=["report", "fault", "plant"])
frame.head()

# %%
# Read the texts
# --------------
#
# Free text is left out unless ``columns`` names it. Words and character n-grams are hashed, so no
# vocabulary is shared.
data = fl.from_frame(frame, label="fault", site="plant", columns=["report"])
print(*data.notes)
federation = fl.Federation(data, fl.Natural())
federation.counts()

# %%
# Compare strategies
# ------------------
#
# Each plant labels four reports initially and four more in each cycle.
study = fl.compare(federation, ["random", "margin"], seeds=3, initial=4, budget=4, cycles=3)
study.table()

# %%
# Three seeds are too few for a test. The learning curve:
study.plot()

# %%
# The encoder was chosen automatically. ``hashed-text`` weights each n-gram by its inverse document
# frequency over all sites: the sites contribute numbers of examples with each n-gram.
run = study.run("margin", seed=0)
print(run.config.encoder)
run.revealed[["function", "description", "bytes"]]

# %%
# Predict new texts:
run.predict(pd.DataFrame({"report": ["oil under the press", "relay of pump 7 is stuck"]}))

# %%
# Real sites
# ----------
#
# Add ``--text report`` to ``fallow coordinate init`` (:doc:`/three-sites`). Aggregates of few examples
# are not anonymous (:doc:`/what-leaves`).
