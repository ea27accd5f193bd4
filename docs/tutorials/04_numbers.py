"""
Numbers to predict
==================

Strategies that choose by classes do not apply here; others do, and random rows are hard to beat.
"""

# %%
import fallow as fl

diabetes = fl.load("diabetes")
federation = fl.Federation(diabetes, fl.IID(), sites=4)
study = fl.compare(
    federation,
    ["random", "badge"],
    training="closed-form",
    encoder=fl.Fourier(features=256),
    seeds=3,
    cycles=3,
    initial=0.1,
    budget=0.1,
)
study.table()

# %%
study.plot()
