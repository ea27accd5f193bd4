"""Fallow: federated active learning in Python.

Fallow selects which examples each site labels, then trains a global or a personalized model.

    import fallow as fl

    federation = fl.Federation(fl.load("digits"), fl.Dirichlet(alpha=0.1), sites=10)
    study = fl.compare(federation, [fl.Random(), fl.Entropy(), fl.AHFAL()], seeds=10)
    study.table()

Every component can be given as an object, a string (``"ahfal:tau=15"``) or TOML.  See
``help(fl.NAME)`` for parameters, references and an example.

Datasets
--------
load                    Load a dataset by name or path.
from_arrays             Create a dataset from arrays, tensors or lists.
from_frame              Create a dataset from a pandas DataFrame.
Dataset                 Labeled examples with a test set.
Federation              Federated dataset: a dataset partitioned into sites.

Partitions
----------
IID                     Equal parts at random.
Natural                 Sites given in the data.
Dirichlet               Class shares from a Dirichlet distribution.
ExactDirichlet          Class shares from a Dirichlet distribution, sites of equal size.
FedMADirichlet          Class shares from a Dirichlet distribution, sites of limited size.
TargetDirichlet         Shares of binned regression targets from a Dirichlet distribution.
Patho, Shards           A few classes per site, in random or equal shares.
ClassWindows            Overlapping windows of classes, sites of random size.
Counts                  Explicit number of examples per site and class.
LongTail                Long-tailed class frequencies, followed by another partition.

Experiments
-----------
run                     Run one query strategy with one seed.
compare                 Compare several query strategies under the same seeds.
read_study              Read a study from its folder.
write_report            Write a report page about one or several studies.
load_model              Load a trained model from a folder.
Run                     Result of `run`: records, labels, model and predictions.
Study                   Result of `compare`: tables, tests, learning curves and runs.
LoadedModel             Model loaded by `load_model`.

Experiment configuration
------------------------
Recipe                  All settings of an experiment.
Spec                    Component by name, with its parameters.
TrainingConfig          Local training: stages, batch size, optimizer and early stopping.
TrainingStage           Number of epochs for one part of the model.
Optimizer, Schedule     Optimizer, and learning rate schedule.
Privacy                 Differential privacy and secure aggregation.

Selection from arrays
---------------------
select                  Select examples from the unlabeled pools of one or several sites.
Site                    Data of one site, as arrays.
Selection               Selected examples with their scores and weights.
PoolStrategy            Query strategy with the interface of scikit-activeml.
FromScikitActiveML      Query strategy of scikit-activeml, run at each site.

Query strategies of a single site
---------------------------------
Random                  Random sampling.
Entropy                 Largest predictive entropy.
Margin                  Smallest margin between the two most likely classes.
LeastConfidence         Smallest probability of the most likely class.
CoreSet                 Core-Set: greedy k-center on features.
Typicality              TypiClust: the most typical example of each uncovered cluster.
ProbCover               Maximum coverage by balls in feature space.
MaxHerding              Maximum average similarity to the unlabeled pool.
UncertaintyHerding      MaxHerding weighted by uncertainty.
DropQuery               Predictions that change under feature dropout, one per cluster.
BADGE                   Large and diverse gradients of the last layer.
BALD                    Disagreement of a committee.
NoiseStability          Predictions that change under noise on the weights.
LCMD                    Largest-cluster maximum-distance selection.
BAIT                    Fisher information of the last layer, for regression.
ACSFW                   Bayesian coreset by the Frank-Wolfe algorithm, for regression.

Federated query strategies
--------------------------
Coverage                Coverage of uncertain regions over all sites.
Typical                 Clusters over all sites, without a model, for few labels.
TypicalUnsure           Typical examples in uncertain regions of all sites.
Ensemble                Combination of the local and the global model.
AHFAL                   Adaptive combination of uncertainty and class balance.
KSAS                    Disagreement of the local and the global model on known classes.
LoGo                    Clusters by the local model, uncertainty by the global model.
FEAL                    Evidential uncertainty of both models, with diversity.
IFAL                    Disagreement of the models about the neighborhood of an example.
FairFAL                 Class-balanced uncertainty with diversity.
FALE                    Leverage score sampling over all sites, without a model.
Chooser                 Multi-armed bandit over query strategies.
Prices                  Margin with a price for each predicted class.
Fisher                  Fisher information of a linear model over all sites.
Pivotal                 Pivotal sampling by leverage scores, for regression.
Complementary           Classes that a site's collaborators predict poorly.
OracleHistogram         Upper bound: uses the true class frequencies of the pool.

Training of a global model
--------------------------
FedAvg                  Federated averaging.
FedProx                 FedAvg with a proximal term.
KCFU                    Balanced softmax with knowledge compensation (KAFAL).
Evidential              Evidential loss (FEAL).
Robust                  Averages that are robust to malicious sites.
ServerSolve             Weighted least squares at the coordinator (FALE).
MaskedSolve             Weighted least squares on masked examples (FALE).
ClosedForm              Closed-form classifier or regressor (ridge), in one round.

Training of personalized models
-------------------------------
Local                   Local training only.
FedAvgFT, FedProxFT     Fine-tuning of the global model at each site.
FedAvgPost              FedAvg, deployed after the local epochs.
FedRep                  Shared body, local head.
Ditto                   Personalized model regularized toward the global one.
APFL                    Mixture of a local and a global model.
PerFedAvg               Meta-learned initialization (MAML).
KNNPer                  Global model interpolated with nearest neighbors.
PFedGraph               Collaboration graph optimized at the coordinator.
DPFL                    Collaborators selected by each site.
ClosedFormHeads         `ClosedForm` with one classifier or regressor per site.

Encoders
--------
Identity                Features without changes.
Fourier                 Random Fourier features.
Convolution             Random convolutional features of images.
EfficientNetLite0       Features of a network pretrained on ImageNet.
Timm, OpenCLIP          Features of pretrained image models.
HashedText              Hashed n-grams of text columns with inverse document frequencies.
SentenceTransformers    Embeddings of texts.
TabPFN                  Embeddings of tabular data.
ONNX                    Output of a network in an ONNX file.
texts_to_rows           Convert texts to arrays for an encoder.

Models
------
Linear, MLP             Linear model and multilayer perceptron, for tabular data.
DigitsCNN, CNN4         Small convolutional networks.
LeNet, LeNetFEMNIST     LeNet variants.
ResNet8, MobileNetV2    Residual network and MobileNet for small images.

Estimators
----------
FederatedClassifier     Classifier with the interface of scikit-learn.
FederatedRegressor      Regressor with the interface of scikit-learn.

Custom algorithms
-----------------
Strategy                Base class of query strategies.
Training                Base class of training algorithms.
Contract                Disclosure declaration of an algorithm.
View                    Data of a site, as seen by a client function.
Picks                   Result of a client function: selected examples.
Release                 Result of a client function: counts to be released with noise.

Namespaces
----------
strategies, training, partitions, encoders, models    The classes above, by kind.
"""

from __future__ import annotations

from fallow._names import WHERE
from fallow._names import __dir__ as __dir__
from fallow._names import __getattr__ as __getattr__

__all__ = ["__version__", *WHERE]
