"""The protocol of KAFAL on CIFAR-10; its published results are not available.

ResNet-8, 50 rounds of 40 epochs, eight of ten sites in a round and all of them in the last,
SGD 0.1 with momentum 0.9 and weight decay 5e-4, batch 128, learning rate x 0.1 after 260
local epochs, the knowledge-compensatory update, labels in proportion to a site's examples.
"""

from __future__ import annotations

from dataclasses import replace

from fallow.core.training_config import TrainingStage
from fallow.data.partition.dirichlet import KAFAL_SIZES
from fallow.settings.spec import Spec
from fallow_papers.ahfal import recipes as ahfal

CIFAR10 = replace(
    ahfal.CIFAR10,
    name="kafal/cifar10",
    title="KAFAL's protocol: CIFAR-10, Dirichlet 0.1, sizes of its split",
    partition=Spec("exact-dirichlet", {"alpha": 0.1, "sizes": list(KAFAL_SIZES)}),
    training=Spec("kcfu"),
    training_config=replace(ahfal.CIFAR10.training_config, stages=(TrainingStage(40),)),
    rounds=50,
    participation=0.8,
    budget_allocation="proportional",
    strategies=("random", "entropy", "core_set", "badge", "ksas"),
    strategy=Spec("ksas"),
    reference="ksas",
    seeds=5,
    published=None,
)

RECIPES = (CIFAR10,)
