"""Federated active learning: many sites, few labels.

    import fallow as fl

    world = fl.Federation(fl.load("digits"), fl.Dirichlet(alpha=0.1), sites=10)
    study = fl.compare(world, [fl.Random(), fl.Entropy(), fl.AHFAL()], seeds=10)
    study.table()

Objects, names ("ahfal:tau=15") and TOML mean the same everywhere.  ``help(fl.NAME)`` shows shapes,
units, errors, the source and an example.

Namespaces
    strategies, training, partitions, encoders    the classes below, by kind

Rows
    load                 a data set by its name
    from_arrays          a data set from arrays, tensors or lists
    from_frame           a data set from a pandas DataFrame
    Dataset              what these return
    Federation           rows at sites

Partitions: which rows each site holds
    IID                  equal parts at random
    Natural              the sites that the data names
    Dirichlet            class shares from a Dirichlet distribution, site sizes as they fall
    ExactDirichlet       the same with sites of equal size
    FedMADirichlet       the same, and sites that are full get nothing more
    TargetDirichlet      the same for bins of numbers to predict
    Patho, Shards        a few classes per site, in equal parts or in drawn ones
    ClassWindows         classes u, u+1, ... at site u, and sizes that are drawn
    Counts               rows of each class counted out by hand
    LongTail             classes that become rarer and rarer, then another partition

Runs
    run                  one strategy under one seed: a Run
    compare              several strategies under the same seeds: a Study
    read_study           a Study that was kept in a folder
    write_report         one page about several studies
    load_model           a LoadedModel from a folder that Run.save wrote
    LoadedModel          predictions of such a model
    Run, Study           records, tables, curves, models, predictions
    Recipe, Spec         settings in words, as TOML has them
    TrainingConfig, TrainingStage  local training: epochs, batch size, and when it ends
    Optimizer, Schedule  its steps, and how the learning rate falls
    Privacy              noise and secure sums

Choosing rows from arrays
    select               a strategy on arrays: one site, or a federation
    Site                 a site as arrays
    Selection            picks with their scores and weights
    PoolStrategy         the same behind the interface of scikit-activeml

Methods of your own
    Strategy             a query strategy
    Training             a training method
    Contract             what a method reads and reveals
    View                 what a function of a method sees of its site
    Picks, Release       what it answers: rows to label, or counts behind noise

Strategies that every site follows by itself
    Random               rows at random
    Entropy              the largest entropy of the prediction
    Margin               the smallest gap between the two likeliest classes
    LeastConfidence      the smallest probability of the likeliest class
    CoreSet              rows that cover the features
    Typicality           the most typical row of each large cluster without a label
    ProbCover            few labels: examples whose balls cover the unlabeled pool
    MaxHerding           few labels: examples that are similar to as many others as possible
    UncertaintyHerding   the same, weighted by the uncertainty of what is covered
    DropQuery            examples whose prediction dropout changes, one of each cluster
    BADGE                large gradients, unlike one another
    BALD                 rows of which a committee is sure, and disagrees
    NoiseStability       predictions that noise on the weights changes, spread out
    LCMD                 the farthest row of the largest cluster
    BAIT, ACSFW          for numbers to predict: Fisher information, sparse subsets

Strategies of a federation
    Coverage             what the model is unsure about, covered by all sites together
    Typical              few labels: one for each cluster of all sites, without a model
    TypicalUnsure        typical rows of what the model is unsure about, at all sites together
    Ensemble             the local and the global model as one
    AHFAL                both models, by how evenly sites hold a class
    KSAS                 where both models differ, on classes that the site knows
    LoGo                 clusters by the local model, the choice in each by the global one
    FEAL                 evidence of both models, with an eye on neighbors
    IFAL                 rows whose neighborhood the models disagree about
    FairFAL              the same quota for each class, rows unlike the labeled
    FALE                 without a model: by leverage scores over all sites
    Chooser              one of several for each query, by what their labels were worth
    Prices               unsure rows, as many of each class as are wanted
    Fisher               rows that leave the least variance of a linear model
    Pivotal              numbers to predict: half leverage, without replacement, spread out
    Complementary        what collaborators do not supply
    OracleHistogram      an upper bound: the true classes of the pool are known

Training: one model for all sites
    FedAvg, FedProx      averages; local steps that stay near the common model
    KCFU, Evidential     as in KAFAL and FEAL
    Robust               averages that stand sites which send anything at all
    ServerSolve, MaskedSolve    least squares from totals, or from masked rows
    ClosedForm           a linear head from totals, in one round

Training: one model per site
    Local                every site by itself
    FedAvgFT, FedProxFT  a common model, tuned at home
    FedAvgPost           the common model after local epochs
    FedRep               a common body, heads of their own
    Ditto, APFL          a private model near the common one, or mixed with it
    PerFedAvg            a common model from which one step leads far
    KNNPer               a common model and the site's nearest labeled rows
    PFedGraph, DPFL      averages over collaborators, chosen by the server or by each site
    ClosedFormHeads      `ClosedForm` with a head per site

Encoders: what models see in place of rows
    Identity             rows as they are
    Fourier              random features of a kernel
    Convolution          what random filters see in images
    EfficientNetLite0    features of photographs by a network that was trained on ImageNet
    Timm, OpenCLIP       what pretrained networks see in images, from files or caches
    SentenceTransformers, texts_to_rows    what they say of texts
    TabPFN               what one makes of rows of tables
    ONNX                 a network in a file

Models
    Linear, MLP          for rows of numbers
    DigitsCNN, LeNet, LeNetFEMNIST, CNN4, ResNet8, MobileNetV2    for images

scikit-learn
    FederatedClassifier, FederatedRegressor
"""

from __future__ import annotations

from fallow._names import WHERE
from fallow._names import __dir__ as __dir__
from fallow._names import __getattr__ as __getattr__

__all__ = ["__version__", *WHERE]
