"""The protocol of LoGo on CIFAR-10; its published results are not available.

The 4-layer net, 100 rounds of 5 epochs, SGD 0.01 with momentum 0.9 and weight decay 1e-5,
batch 64, learning rate x 0.1 from the 77th round, 5 % initial labels and 5 % per cycle up
to 80 %.
"""

from __future__ import annotations

from dataclasses import replace

from fallow.settings.spec import Spec
from fallow_papers.fairfal import recipes as fairfal

CIFAR10 = replace(
    fairfal.CIFAR10,
    name="logo/cifar10",
    title="LoGo's protocol: CIFAR-10, Dirichlet 0.1",
    partition=Spec("exact-dirichlet", {"alpha": 0.1}),
    cycles=15,
    strategies=("random", "entropy", "entropy:model=global", "core_set", "badge", "logo"),
    strategy=Spec("logo"),
    reference="logo",
    published=None,
)

RECIPES = (CIFAR10,)
