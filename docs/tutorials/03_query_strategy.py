"""
My query strategy, with a test and a citation
=============================================

Write a query strategy, test it on arrays, compare it with others and use it at real sites. The
example is *expected gradient length* (Settles, Craven and Ray, 2007): select the examples that
would change the model most, whatever their label is.
"""

# %%
# A function is a strategy
# ------------------------
#
# A query strategy is a function of a view of one site and the number of examples to select. It
# returns positions in the unlabeled pool as a list, a NumPy array or a tensor. Parameters after
# ``n`` are settings.
#
# For the last layer, the gradient for label y is the outer product of P - e_y and the embedding z,
# where P are the class probabilities. Its expected length is norm(z) * sum_y P_y norm(P - e_y).
import torch

import fallow as fl
from fallow.core import client
from fallow.core.values import Count, LabelCount, Share


def gradient_length(probabilities, embedding):
    """Return the expected gradient length of each example.

    probabilities: (n, classes); embedding: (n, d).  Returns (n,).
    """
    classes = probabilities.shape[1]
    distance = (probabilities[:, None, :] - torch.eye(classes)).norm(dim=2)  # (n, classes)
    return embedding.norm(dim=1) * (probabilities * distance).sum(1)


def expected_gradient(view, n):
    """Select the n examples with the largest expected gradient."""
    probabilities = view.logits("local").softmax(1)
    score = gradient_length(probabilities, view.embed("local"))
    return score.argsort(descending=True)[:n]


# %%
# A view offers
#
# * ``view.rows()``: the unlabeled examples, and ``view.rows("labeled")``: the labeled ones,
# * ``view.labels``: the labels of the site,
# * ``view.logits(model)`` and ``view.embed(model)`` for the models ``"local"`` and ``"global"``,
# * ``view.stream(name)``: a random generator that depends on the seed.
#
# It gives no access to hidden labels.
#
# Test it
# -------
#
# Compare it with a plain formula:
p = torch.tensor([[0.6, 0.3, 0.1]])
z = torch.tensor([[1.0, 2.0]])
plain = 0.0
for label in range(3):
    gradient = torch.outer(p[0] - torch.eye(3)[label], z[0])
    plain += float(p[0, label] * gradient.norm())
assert abs(plain - float(gradient_length(p, z))) < 1e-6

# %%
# Then apply the strategy to arrays. ``fl.select`` needs no federation: pass the unlabeled pool, the
# labeled examples and a trained model. The result must be different positions of the pool.
digits = fl.load("digits")
federation = fl.Federation(digits, fl.Dirichlet(alpha=0.3), sites=5)
trained = fl.run(federation, "random", training="fedavg", model="mlp", rounds=2, cycles=0)
x = digits.x[:200]
labeled = (x[:50], digits.y[:50])
selected = fl.select(x[50:], expected_gradient, model=trained.model, labeled=labeled, n=10)
assert len(set(selected.tolist())) == 10
selected

# %%
# Compare it
# ----------
#
# A function is accepted wherever a name is. The default training algorithm is a closed-form
# classifier.
study = fl.compare(
    federation,
    ["random", "margin", expected_gradient],
    seeds=3,
    initial=0.02,
    budget=0.02,
    cycles=3,
)
study.table()


# %%
# A class states its source and what it discloses
# -----------------------------------------------
#
# A class that derives from ``fl.Strategy`` can have settings, a citation and a server side. Its
# contract has the citation and the requirements. Of ``select``, the coordinator sees a count.
class ExpectedGradient(fl.Strategy):
    """Select the examples with the largest expected gradient of the last layer."""

    power: float = 1.0
    contract = fl.Contract(
        title="Expected gradient length",
        paper="Settles, Craven, Ray, Multiple-Instance Active Learning",
        year=2007,
        needs=["local"],
    )

    def select(self, view, n):
        """Select n examples at one site."""
        probabilities = view.logits("local").softmax(1)
        score = gradient_length(probabilities, view.embed("local")) ** self.power
        return score.argsort(descending=True)[:n]


run = fl.run(federation, ExpectedGradient(power=2.0), initial=0.02, budget=0.02, cycles=1)
run

# %%
# Reports cite the paper of every strategy, and list what it disclosed:
run.revealed


# %%
# Use the information of all sites
# --------------------------------
#
# By default, each site selects on its own. To use aggregates of all sites, define ``query`` and a
# second client function. A decorator declares what it reveals, takes and returns. Here sites
# select more examples of the classes that are rare in the federation. The coordinator sees the
# class counts of all sites together.
class RareFirst(fl.Strategy):
    """Prefer examples that are predicted as classes with few labels at all sites."""

    contract = fl.Contract(title="Rare classes first", needs=["global"])

    def query(self, ask, budget, memo):
        """Ask for the counts of all sites, then let each site select."""
        total = ask.sum(self.count)["labels"]
        to = {site: {"n": n} for site, n in budget.items()}
        ask.keep(self.select, to=to, rarity=1 / (1 + total))
        return memo

    @client.sum("labels per class", returns={"labels": Count("classes")})
    def count(self, view):
        """Return the labels per class of one site."""
        return {"labels": view.counts.double()}

    @client.keep(
        "number of selected examples",
        takes={"n": LabelCount(), "rarity": Share("classes")},
    )
    def select(self, view, n, rarity):
        """Select the n examples with the highest expected rarity."""
        score = (view.logits("global").softmax(1) * rarity).sum(1)
        return score.argsort(descending=True)[:n]


fl.run(federation, RareFirst(), initial=0.02, budget=0.02, cycles=1)

# %%
# Use it elsewhere
# ----------------
#
# Saved in ``mine.py``, a strategy is named ``module:Class`` or ``module:function``:
#
# .. code-block:: bash
#
#    fallow compare demo --strategy random,mine:ExpectedGradient:power=2 --seeds 7
#    fallow benchmark --strategy mine:ExpectedGradient --task digits --seeds 5
#
# At real sites, install it as a package, which every site allows by name and digest.
