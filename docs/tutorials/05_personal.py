"""
A model for each site
=====================

Where sites disagree about what is right, one model for all serves none of them well.
"""

# %%
# Each of five sites holds three of the ten digits.
import fallow as fl

digits = fl.load("digits")
federation = fl.Federation(digits, fl.Patho(classes=3), sites=5)
study = fl.compare(
    federation,
    [
        "random@training=local",
        "random@training=fedavg-ft",
        "random@training=closed-form-heads@encoder=identity",
    ],
    seeds=2,
    cycles=1,
    initial=0.1,
    budget=0.05,
    training="fedavg",
    rounds=5,
)
study.table()
