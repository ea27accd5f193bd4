"""Federated active learning: many sites, few labels.

    import fallow as fl

    world = fl.Federation(fl.load("digits"), fl.Dirichlet(alpha=0.1), sites=10)
    study = fl.compare([fl.Random(), fl.Entropy(), fl.AHFAL()], world, seeds=10)
    study.table()

Objects, names ("ahfal:tau=15") and TOML mean the same everywhere.  ``help(fl.NAME)`` shows shapes,
units, errors, the source and an example.

Rows
    load                 a data set by its name
    from_arrays          a data set from arrays, tensors or lists
    from_frame           a data set from a pandas DataFrame
    Dataset              what these return
    Federation           rows at sites: the world of a run
    Partitions           Dirichlet, ExactDirichlet, FedMADirichlet, TargetDirichlet, IID, Natural,
                         Patho, Shards, ClassWindows, Counts, LongTail

Runs
    run                  one strategy under one seed: a Run
    compare              several strategies under the same seeds: a Study
    read_study           a Study that was kept in a folder
    write_report         one page about several studies
    Run, Study           records, tables, curves, models, predictions
    Recipe, Spec         settings in words, as TOML has them
    Plan, Segment, Optimiser, Schedule    local training
    Privacy              noise and secure sums

Choosing rows from arrays
    select               a strategy on arrays: one site, or a federation
    Site                 a site as arrays
    Selection            picks with their scores and weights
    PoolStrategy         the same behind the interface of scikit-activeml

Methods of your own
    Query                a strategy
    Training             a training method
    Contract             what a method reads and reveals
    View, Picks, Release what a function of a method sees and answers

Strategies
    Random, Entropy, Margin, LeastConfidence, CoreSet, Typicality, BADGE, BALD, Ensemble,
    NoiseStability, LCMD, BAIT, ACSFW; federated: AHFAL, KSAS, LoGo, FEAL, IFAL, FairFAL, FALE,
    Complementary; an upper bound: OracleHistogram

Training
    one model for all    ClosedForm, FedAvg, FedProx, KCFU, Evidential, Robust, ServerSolve,
                         MaskedSolve
    one model per site   FedAvgFT, FedProxFT, FedAvgPost, FedRep, Ditto, APFL, PerFedAvg, KNNPer,
                         PFedGraph, DPFL, ClosedFormHeads, Local

Encoders
    Identity, Fourier, Convolution

Models
    Linear, MLP, DigitsCNN, LeNet, LeNetFEMNIST, CNN4, ResNet8, MobileNetV2

scikit-learn
    FederatedClassifier, FederatedRegressor
"""

from __future__ import annotations

from fallow._face import WHERE
from fallow._face import __dir__ as __dir__
from fallow._face import __getattr__ as __getattr__

__all__ = ["__version__", *WHERE]
