"""
My images and my PyTorch model
==============================

Compare query strategies on a folder of images with a network of your own, and predict new images
with the result. You need an installed Fallow (:doc:`/installing`).
"""

# %%
# Arrange the images
# ------------------
#
# Fallow reads folders ``site/class/image``. Each first-level folder is a site, and each
# second-level folder is a class. A folder ``unlabeled`` beside the classes holds images without
# labels. Here we write 600 small images of digits at three clinics. With images of your own, skip
# this step.
import tempfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from sklearn.datasets import load_digits
from torch import nn

import fallow as fl

digits = load_digits()
images = (digits.images / 16).astype(np.float32)  # (n, 8, 8), from 0 to 1
folder = Path(tempfile.mkdtemp(prefix="images-"))
scans = folder / "scans"
clinics = ["north", "south", "west"]
for number in range(600):
    pixels = (images[number] * 255).astype(np.uint8)
    label = digits.target[number]
    clinic = clinics[
        (label // 4 + number % 2) % 3
    ]  # every clinic has its own mix of classes
    class_folder = scans / clinic / str(label)
    class_folder.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(class_folder / f"{number:03d}.png")
sorted(path.name for path in scans.iterdir())

# %%
# Read them
# ---------
#
# ``fl.Federation`` takes the path of the folder. ``fl.Natural()`` makes one site per first-level
# folder. A fifth of the images of each site is set aside for testing.
federation = fl.Federation(str(scans), fl.Natural())
federation.counts()

# %%
# Images are float tensors ``(n, channels, height, width)`` with values from 0 (black) to 1
# (white). Images of different sizes are resized to the most frequent size.
#
# Start with the default
# ----------------------
#
# The default is a closed-form classifier on fixed convolution features: a strong baseline with few
# labels, in seconds.
baseline = fl.compare(
    federation,
    ["random", "margin", "typical-unsure"],
    seeds=2,
    initial=0.05,
    budget=0.05,
    cycles=1,
)
baseline.table()


# %%
# Define a network
# ----------------
#
# A model is any ``torch.nn.Module`` whose last layer is an ``nn.Linear``. ``forward`` returns
# logits without softmax. Fallow finds the last layer and uses its input as the embedding that
# BADGE, Core-Set and other strategies read.
class Net(nn.Module):
    """Two convolutions and a linear layer."""

    def __init__(self, in_channels, num_classes):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(in_channels, 16, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
        )
        self.classify = nn.Linear(32 * 4, num_classes)

    def forward(self, x):
        return self.classify(self.body(x))


# %%
# The parameters ``in_channels`` and ``num_classes`` are filled in from the data. Give the class, so
# that each seed starts from new weights:
settings = {
    "training": fl.FedAvg(lr=0.1, epochs=5, batch_size=16),
    "model": Net,
    "rounds": 10,
    "initial": 0.2,
    "budget": 0.1,
    "cycles": 1,
}
study = fl.compare(federation, ["random", "badge"], seeds=2, **settings)
study.table()

# %%
# If the accuracy is near that of the most frequent class, increase ``rounds``, ``epochs`` or the
# learning rate ``lr``. A note below the table warns about this.
#
# Use a pretrained network
# ------------------------
#
# With few labels, a frozen pretrained network is usually better than training from scratch. Pass it
# as ``encoder``: its features are computed once, and a closed-form classifier is solved on them.
# Any module works. Here an untrained one stands in for a network that you would load:
torch.manual_seed(0)
frozen = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten()
)
run = fl.run(federation, "margin", encoder=frozen, initial=0.1, budget=0.05, cycles=1)
run

# %%
# Networks of ``timm`` are names (:doc:`/closed-form`).
#
# Predict and save
# ----------------
#
# ``predict`` returns class names, and ``predict_proba`` probabilities. New arrays need the same
# scale: pixels from 0 to 1, or uint8, which is divided by 255.
new = torch.from_numpy(images[-5:, None])  # (5, 1, 8, 8), from 0 to 1
print(run.predict(new), digits.target[-5:])

# %%
# ``save`` writes a model of built-in classes to a folder without pickles, and ``fl.load_model``
# reads it:
baseline.run("margin", seed=0).save(folder / "model")
print(fl.load_model(folder / "model").predict(new))

# %%
# Save the ``state_dict()`` of a network of your own:
trained = study.run("badge", seed=0)
torch.save(trained.model.state_dict(), folder / "net.pt")

# %%
# The same on the command line
# ----------------------------
#
# With the class ``Net`` in ``nets.py``:
#
# .. code-block:: bash
#
#    fallow compare scans --strategy random,badge --set training=fedavg --set model=nets:Net \
#        --set lr=0.1 --set rounds=10 --seeds 7 --out runs/scans
#    fallow predict runs/scans new-images --own-code --out predicted.csv
#
# Next: :doc:`/train` for all hyperparameters, devices and precision.
import shutil

shutil.rmtree(folder)
