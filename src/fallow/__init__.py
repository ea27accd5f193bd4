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
load                    Load a dataset by its name, or from a file, a folder or a data frame.
from_arrays             Create a dataset from arrays, tensors, lists or DataFrame columns.
from_frame              Create a dataset from a data frame of pandas, polars or Arrow.
Dataset                 Examples with labels, and a test set with the same columns.
Federation              Federated dataset: a dataset and its partition into sites.
describe                Describe your data on one page, to check that they were read as you meant.
DataSheet               Data sheet of a dataset; the result of `describe`.
describe_sites          Describe the data of each site, from counts that a real site would send.
DataDescription         Description of the data of all sites; the result of `describe_sites`.
texts_to_rows           Encode texts as character codes, zero-padded, (n, length) float32.

Experiments
-----------
run                     Run federated active learning with one query strategy and one seed.
Run                     Result of `fallow.run`.
compare                 Compare query strategies under the same seeds.
Study                   Result of `compare` or `read_study`.
read_study              Read a study from its folder.
write_report            Write a report page about one or several studies, and return its path.
load_model              Load a trained model from a folder.
LoadedModel             Trained model that `load_model` read from a folder.

Experiment configuration
------------------------
ExperimentConfig        Experiment configuration: all settings of an experiment except the seed.
Spec                    Component by name (or `module:Class`), with the parameters that differ from
                        the default.
TrainingConfig          Local training at a site: stages of epochs over its labeled examples.
TrainingStage           Train a part of the model for some epochs (FedRep trains the head, then the
                        body).
Optimizer               Optimizer of local training; its moments are stored with the weights.
Schedule                Decrease the learning rate at milestones or along a cosine.
Privacy                 Protection of replies before they leave a site.

Selection from arrays
---------------------
select                  Select examples from an unlabeled pool, or from the pools of several sites.
Site                    Data of one site, as arrays for `select`.
Selection               Selected examples of one site.
FromScikitActiveML      Pool-based query strategy of scikit-activeml, run at each site.

Custom algorithms
-----------------
Strategy                Base class of custom query strategies.
Training                Base class of custom training algorithms; the default is federated
                        averaging.
Contract                Declaration of an algorithm: its references, requirements and disclosures.
View                    A site as an algorithm sees it.
SelectedExamples        Selected examples: different positions in the unlabeled pool, in order of
                        selection.
Release                 Counts to which noise is added after the client function; then `post` runs.

Partitions
----------
ClassWindows            Assign consecutive classes to each site, with equally many examples of each.
Counts                  Partition by explicit numbers of examples of each class at each site.
Dirichlet               Distribute each class over sites by Dir(alpha); smaller alpha = more skew.
ExactDirichlet          Draw the class shares of each site from Dir(alpha), with equal sizes of
                        sites.
FedMADirichlet          Distribute classes by Dir(alpha) with the mask of FedMA; smaller alpha =
                        more skew.
IID                     Partition examples at random in equal parts (IID).
LongTail                Keep a long-tailed subset, then partition it with `inner`; larger rho = more
                        skew.
Natural                 Use the natural sites of the data (writers, patients, hospitals).
Patho                   Draw a few classes for each site, and divide each class by Dir(alpha) over
                        its sites.
Shards                  Assign a few classes to each site, in equal parts; fewer `classes` = more
                        skew.
TargetDirichlet         Distribute each bin of targets over sites by Dir(alpha); smaller alpha =
                        more skew.

Query strategies
----------------
ACSFW                   Select a Bayesian coreset of the unlabeled pool with the Frank-Wolfe
                        algorithm.
AHFAL                   Balance uncertainty and class shares, with scores adapted to each class.
BADGE                   Select examples with large and diverse gradients of the last layer.
BAIT                    Select examples whose labels most reduce the variance of all predictions.
BALD                    Select examples on which the members of a committee are certain and
                        disagree.
Complementary           Select uncertain examples of classes that a site's collaborators predict
                        poorly.
CoreSet                 Select examples so that no example is far from a labeled one (greedy
                        k-center).
DropQuery               Select examples whose predicted class changes under dropout, one per
                        cluster.
Ensemble                Combine the local and the global model by the mean of predictions or of
                        ranks.
Entropy                 Select the examples with the largest predictive entropy.
FALE                    Draw examples by leverage score, and weight each by its number of draws.
FEAL                    Select by aleatoric uncertainty of both models and epistemic uncertainty of
                        one.
FairFAL                 Give each class the same quota, and select uncertain and diverse examples in
                        it.
IFAL                    Select examples whose neighborhood differs between three models.
KSAS                    Select by the symmetric KL divergence between the local and the global
                        model.
LCMD                    Select the farthest example of the largest cluster (maximum distance).
LeastConfidence         Select the examples with the smallest maximum probability.
LoGo                    Cluster by the local model, and select the example most uncertain globally.
Margin                  Select the examples with the smallest gap between the two largest
                        probabilities.
MaxHerding              Select examples with the largest total similarity to the unlabeled pool.
NoiseStability          Select examples whose prediction changes under small noise on the weights.
OracleHistogram         Select labels that move each site towards the true class shares of the
                        federation.
Pivotal                 Draw spatially balanced examples without replacement, weighted by half
                        leverage.
ProbCover               Select examples whose balls of one radius cover as much of the pool as
                        possible.
Random                  Select examples uniformly without replacement.
Typical                 Select the most typical example of each cluster of the federation without a
                        label.
TypicalUnsure           Select typical examples in the clusters with the largest uncertainty per
                        label.
Typicality              Select the most typical example of each of the largest clusters without a
                        label.
UncertaintyHerding      Select as `MaxHerding`, with each example of the pool weighted by its
                        uncertainty.

Training algorithms for a global model
--------------------------------------
BoostedTrees            Boost decision trees on histograms of all sites, for tables.
ClosedForm              Solve for a linear classifier or regressor in closed form (ridge
                        regression).
ClosedFormLabels        Solve for one linear model per label in closed form (ridge regression).
Evidential              Train with the evidential loss of FEAL.
FedAvg                  Average the models of the sites after local epochs, weighted by labels.
FedProx                 Train with a proximal term that keeps local models close to the global
                        model.
KCFU                    Train with a balanced softmax and knowledge distillation from the global
                        model.
MaskedSolve             Solve least squares from masked examples, without disclosing the model.
NoTraining              Select examples for others to annotate, and train nothing.
Robust                  Average models so that a few malicious sites cannot dominate the result.
Scaffold                Correct the gradients of each site by the difference to those of all sites.
ServerSolve             Solve weighted least squares over the labeled examples of all sites.

Training algorithms for personalized models
-------------------------------------------
APFL                    Mix a local and a global model with an adaptive weight at each site.
ClosedFormHeads         Solve for one closed-form model per site, by weighting its own examples.
DPFL                    Average each site's model with those of selected collaborators.
Ditto                   Train a personalized model that is regularized towards the global model.
FedAvgFT                Run FedAvg, then fine-tune all layers at each site.
FedAvgPost              Run FedAvg, and deploy the locally trained model of each site.
FedProxFT               Run FedProx, then fine-tune all layers at each site, as in `FedAvgFT`.
FedRep                  Train a shared body and a separate head for each site.
KNNPer                  Interpolate the global model with a k-nearest-neighbor classifier at each
                        site.
Local                   Train a model at each site alone, without aggregation.
PFedGraph               Mix the models of all sites by a learned collaboration graph.
PerFedAvg               Train a global model that adapts to each site in one step (first-order
                        MAML).

Encoders
--------
Convolution             Average the responses of random filters over the parts of an image.
EfficientNetLite0       Encode photographs with EfficientNet-Lite0, trained on ImageNet.
Fourier                 Approximate a Gaussian kernel with random Fourier features.
HashedText              Weight hashed words and character n-grams of text columns, and project them.
Identity                Flatten examples without encoding, for tables.
Tabular                 Put columns of a table, their normal scores and Fourier features side by
                        side.

Models
------
CNN4                    Convolutional network of four 3x3 layers with 64 filters and batch norm.
DigitsCNN               Convolutional network of two small layers, for images such as scikit-learn's
                        digits.
LeNet                   LeNet with 6 and 16 filters and hidden layers of 120 and 84 units, as in
                        DPFL.
LeNetFEMNIST            LeNet with 4 and 12 filters and hidden layers of 120 and 100 units, for
                        FEMNIST.
Linear                  Logistic or linear regression: one linear layer on the flattened example.
MLP                     Multilayer perceptron with ReLU activations on the flattened example.
MobileNetV1             MobileNet (Howard et al., 2017) for small images.
MobileNetV2             MobileNetV2 (Sandler et al., 2018) for small images.
ResNet18                Residual network of 18 layers (He et al., 2016) for small images.
ResNet8                 Residual network of eight layers (He et al., 2016).
Trees                   Boosted decision trees on the flattened example, for training by
                        `BoostedTrees`.

Namespaces
----------
strategies, training, partitions, encoders, models    The classes above, by kind.
"""

from __future__ import annotations

from fallow._names import WHERE
from fallow._names import __dir__ as __dir__
from fallow._names import __getattr__ as __getattr__

__all__ = ["__version__", *WHERE]
