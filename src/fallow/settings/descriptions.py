"""Descriptions of all settings, for lists, pages and the files of ``fallow init``."""

from __future__ import annotations

from fallow.core.load_options import OPTIONS

MEANINGS: dict[str, str] = {
    "title": "Title of the study in its report.",
    # data
    "data": "Name of a dataset, or path of a table, an .npz file or a folder of images.",
    **{name: option.meaning for name, option in OPTIONS.items()},
    "rows": "Number of training examples, drawn at random (default: all).",
    "test_rows": "Number of test examples, drawn at random (default: all).",
    "resplit": "Whether to draw a new test set of the same size for every seed.",
    "features": "Pretrained model whose frozen features replace the examples.",
    "encoder": "Encoder of the examples, fitted on aggregates over all sites ('fallow encoders').",
    "standardize": "Feature scaling; auto: over all sites for your own tables and for "
    "regression; ranges: by the agreed ranges of columns, at real sites.",
    "target_scale": "Examples whose mean and variance standardize regression targets.",
    "partition": "Distribution of the examples over the sites ('fallow partitions').",
    "sites": "Number of sites; 0 with the natural partition: all sites in the data.",
    "flip": "Number of sites with wrong labels; scores cover the other sites.",
    # model and training
    "model": "Model to train ('fallow models').",
    "training": "Training algorithm ('fallow algorithms'). Network settings (model, rounds, lr, ...) "
    "require one that trains a network, such as fedavg.",
    "head": "Training of the last layer; exact: in closed form after the last round.",
    "training_config.stages": "Local epochs, by part of the model; 2: two epochs of the whole model.",
    "training_config.batch_size": "Batch size.",
    "training_config.optimizer.name": "Optimizer of local training.",
    "training_config.optimizer.lr": "Learning rate.",
    "training_config.optimizer.momentum": "Momentum of SGD.",
    "training_config.optimizer.weight_decay": "Weight decay: L2 of SGD and Adam, decoupled in AdamW.",
    "training_config.optimizer.betas": "Decay rates of the moment estimates of Adam.",
    "training_config.optimizer.eps": "Term added to the denominator of Adam for numerical stability.",
    "training_config.optimizer.persist": "Whether to keep the optimizer state between rounds.",
    "training_config.schedule.milestones": "Epochs or rounds after which the learning rate decreases.",
    "training_config.schedule.factor": "Factor of the learning rate at each milestone.",
    "training_config.schedule.unit": "Unit of the milestones and of cosine.",
    "training_config.schedule.cosine": "Epochs or rounds of a cosine decrease of the learning rate.",
    "training_config.start": "Initial weights of local training: received or newly initialized.",
    "training_config.stop_at": "Training accuracy at which training stops early.",
    "training_config.augment": "Data augmentation for images.",
    "training_config.patience": "Number of epochs without improvement before early stopping.",
    "training_config.mix": "Alpha of mixup with unlabeled examples, Beta(alpha, alpha).",
    "rounds": "Number of rounds per cycle.",
    "participation": "Fraction of the sites in each round; all sites take part in the last one.",
    "restart": "Initial model of a cycle: newly initialized, or that of the last cycle.",
    "local_source": "Origin of the local model in query strategies; auto: as published.",
    # labels
    "strategy": "Query strategy, which selects the examples to label ('fallow algorithms').",
    "initial": "Initial labeled set: a fraction of all examples (0.1), or labels at each site (20).",
    "initial_by": "Selection of the initial labeled set: random, typical or by the query strategy.",
    "budget": "Label budget of a cycle: a fraction of all examples (0.05), or labels at each "
    "site (20); or a list of these, one for each cycle.",
    "queries_per_cycle": "Number of successive queries that share the label budget of a cycle.",
    "cycles": "Number of cycles after the initial training.",
    "evaluation_fraction": "Fraction of the label budget for a random evaluation set.",
    "stop": "Stopping criterion for the cycles ('fallow settings stop').",
    "protocol": "Accumulate labels, or select each budget from scratch; auto: as published.",
    "budget_allocation": "Allocation of a fraction to the sites: equal numbers, or proportional to "
    "their examples.",
    "validation": "Fraction of the labels reserved for model selection at each site.",
    "fresh_first": "Whether new labels serve as validation set in the first round of a cycle.",
    # privacy
    "privacy.sums": "How sums of labeled examples leave a site: exact (rows can be computed from them) "
    "or noisy (differential privacy); none: as privacy.epsilon implies, in simulations only.",
    "privacy.epsilon": "Epsilon of each noisy release of counts or aggregates; none: no noise.",
    "privacy.total": "Privacy budget of a site per run, in epsilon; none: the sum over all queries.",
    "privacy.mechanism": "Noise mechanism of differential privacy.",
    "privacy.secure_sum": "Whether to use secure aggregation, so that only aggregates are visible.",
    "privacy.bound": "Largest value of a site's contribution in secure aggregation.",
    # evaluation and execution
    "test": "Test set of each site: the common one, or examples distributed like its own.",
    "score_rounds": "Number of last rounds over which the score of a cycle is averaged.",
    "metrics": "Additional metrics of each evaluation, with 95 % intervals: auroc, "
    "average-precision, f1, sensitivity@0.9, brier, calibration-error; for regression r2, mae.",
    "coverage": "Coverage of prediction sets, or of intervals for regression, from the test examples "
    "(conformal prediction); none: no sets.",
    "measure": "Additional measurements; fairness: accuracy of the worst tenth of the sites and spread "
    "between sites; disclosure, in simulations: attack the sums and the model of closed-form "
    "training, and count the examples that are read.",
    "executor": "Execution of local training; it does not affect the results.",
    "channels_last": "Whether images are stored channels-last; results may differ by rounding.",
    "device": "Device for training and prediction; CUDA_VISIBLE_DEVICES chooses the GPU.",
    "precision": "Precision of matrix products; bf16 and tf32 are faster and less accurate.",
    "dtype": "Floating-point type.",
    # the study
    "strategies": "Query strategies of 'fallow compare'.",
    "reference": "Query strategy to test against; none: random, if it is included.",
    "seeds": "Number of seeds; every query strategy runs with each.",
    "bounds": "Upper bounds to run in addition; false: none.",
    "published": "Published results to show next to the results.",
}

PARTS: dict[str, str] = {
    "training_config": "Local training of a site in a round.",
    "local_training_config": "Training of the local models of a query strategy.",
    "privacy": "How sums leave a site (sums, epsilon), and secure aggregation (secure_sum).",
}
"""Descriptions of settings with nested settings."""


def meaning_of(name: str) -> str:
    """Return the description of a setting, or "" if it has none.

    Settings of ``local_training_config`` have the descriptions of ``training_config``.
    """
    usual = name.replace("local_training_config.", "training_config.")
    return MEANINGS.get(usual) or PARTS.get(name, "")
