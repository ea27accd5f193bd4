"""Fallow's own named datasets."""

from __future__ import annotations

from typing import Literal

from fallow.catalog.entry import CatalogEntry, Edition, PublishedFile

READERS = "fallow.data.catalog"
UCI = "https://archive.ics.uci.edu"
CC_BY = "CC BY 4.0"


def _bundled_entry(
    name: str, *, rows: int, shape: tuple[int, ...], classes: int
) -> CatalogEntry:
    """Return a dataset of scikit-learn; ``classes`` is 0 for regression."""
    task: Literal["classification", "regression"] = "regression"
    if classes:
        task = "classification"
    return CatalogEntry(
        name=name,
        task=task,
        rows=rows,
        shape=shape,
        classes=classes,
        source="bundled",
        page="https://scikit-learn.org/stable/datasets/toy_dataset.html",
        license="BSD-3-Clause (scikit-learn)",
        editions=(Edition(read=f"{READERS}.files:read_bundled"),),
    )


BUNDLED = (
    _bundled_entry("digits", rows=1797, shape=(1, 8, 8), classes=10),
    _bundled_entry("breast_cancer", rows=569, shape=(30,), classes=2),
    _bundled_entry("wine", rows=178, shape=(13,), classes=3),
    _bundled_entry("iris", rows=150, shape=(4,), classes=3),
    _bundled_entry("diabetes", rows=442, shape=(10,), classes=0),
)

MNIST_URL = "https://storage.googleapis.com/cvdf-datasets/mnist"
QMNIST_URL = "https://raw.githubusercontent.com/facebookresearch/qmnist/master"
MNIST = CatalogEntry(
    name="mnist",
    task="classification",
    rows=70_000,
    shape=(1, 28, 28),
    classes=10,
    class_names=tuple("0123456789"),
    sites="writer",
    page="https://github.com/facebookresearch/qmnist",
    license="CC BY-SA 3.0 as commonly stated; writers (QMNIST): BSD-3-Clause",
    citation="LeCun, Cortes, Burges: The MNIST database; Yadav, Bottou: Cold Case: The "
    "Lost MNIST Digits, NeurIPS 2019",
    editions=(
        Edition(
            read=f"{READERS}.idx:read_mnist",
            files=(
                PublishedFile(
                    name="mnist/train-images-idx3-ubyte.gz",
                    size=9_912_422,
                    checksum="sha256:440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
                    url=f"{MNIST_URL}/train-images-idx3-ubyte.gz",
                ),
                PublishedFile(
                    name="mnist/train-labels-idx1-ubyte.gz",
                    size=28_881,
                    checksum="sha256:3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
                    url=f"{MNIST_URL}/train-labels-idx1-ubyte.gz",
                ),
                PublishedFile(
                    name="mnist/t10k-images-idx3-ubyte.gz",
                    size=1_648_877,
                    checksum="sha256:8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
                    url=f"{MNIST_URL}/t10k-images-idx3-ubyte.gz",
                ),
                PublishedFile(
                    name="mnist/t10k-labels-idx1-ubyte.gz",
                    size=4_542,
                    checksum="sha256:f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
                    url=f"{MNIST_URL}/t10k-labels-idx1-ubyte.gz",
                ),
                PublishedFile(
                    name="mnist/qmnist-train-labels-idx2-int.gz",
                    checksum="md5:0058f8dd561b90ffdd0f734c6a30e5e4",
                    url=f"{QMNIST_URL}/qmnist-train-labels-idx2-int.gz",
                    is_optional=True,
                ),
                PublishedFile(
                    name="mnist/qmnist-test-labels-idx2-int.gz",
                    checksum="md5:5b5b05890a5e13444e108efe57b788aa",
                    url=f"{QMNIST_URL}/qmnist-test-labels-idx2-int.gz",
                    is_optional=True,
                ),
            ),
        ),
        Edition(
            read=f"{READERS}.idx:read_keras_mnist",
            files=(
                PublishedFile(
                    name="mnist.npz",
                    size=11_490_434,
                    checksum="sha256:731c5ac602752760c8e48fbffcf8c3b850d9dc2a2aedcf2cc48468fc17b673d1",
                    url="https://storage.googleapis.com/tensorflow/tf-keras-datasets/mnist.npz",
                ),
            ),
        ),
    ),
)

FASHION_URL = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"
FASHION_MNIST = CatalogEntry(
    name="fashion_mnist",
    task="classification",
    rows=70_000,
    shape=(1, 28, 28),
    classes=10,
    class_names=(
        *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
        *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
    ),
    page="https://github.com/zalandoresearch/fashion-mnist",
    license="MIT",
    citation="Xiao, Rasul, Vollgraf: Fashion-MNIST, 2017, arXiv:1708.07747",
    editions=(
        Edition(
            read=f"{READERS}.idx:read_fashion_mnist",
            files=(
                PublishedFile(
                    name="fashion_mnist/train-images-idx3-ubyte.gz",
                    size=26_421_880,
                    checksum="sha256:3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
                    url=f"{FASHION_URL}/train-images-idx3-ubyte.gz",
                ),
                PublishedFile(
                    name="fashion_mnist/train-labels-idx1-ubyte.gz",
                    size=29_515,
                    checksum="sha256:a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
                    url=f"{FASHION_URL}/train-labels-idx1-ubyte.gz",
                ),
                PublishedFile(
                    name="fashion_mnist/t10k-images-idx3-ubyte.gz",
                    size=4_422_102,
                    checksum="sha256:346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
                    url=f"{FASHION_URL}/t10k-images-idx3-ubyte.gz",
                ),
                PublishedFile(
                    name="fashion_mnist/t10k-labels-idx1-ubyte.gz",
                    size=5_148,
                    checksum="sha256:67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
                    url=f"{FASHION_URL}/t10k-labels-idx1-ubyte.gz",
                ),
            ),
        ),
    ),
)

CIFAR_URL = "https://www.cs.toronto.edu/~kriz"
CIFAR_CITATION = "Krizhevsky: Learning Multiple Layers of Features from Tiny Images, 2009"
CIFAR_LICENSE = "none stated; research use with citation"
CIFAR10_BATCHES = tuple(
    f"cifar-10-batches-bin/{name}.bin"
    for name in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")
)
CIFAR10_CLASSES = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)
SMALL = (2000, 500)
"""Numbers of training and test images of the small CIFAR-10."""


def _cifar10_archive(*members: str) -> PublishedFile:
    return PublishedFile(
        name="cifar-10-binary.tar.gz",
        size=170_052_171,
        checksum="sha256:c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
        url=f"{CIFAR_URL}/cifar-10-binary.tar.gz",
        members=members,
    )


CIFAR10_PICKLES = ("cifar-10-python.tar.gz", "cifar-10-batches-py")
CIFAR10 = CatalogEntry(
    name="cifar10",
    task="classification",
    rows=60_000,
    shape=(3, 32, 32),
    classes=10,
    class_names=CIFAR10_CLASSES,
    page=f"{CIFAR_URL}/cifar.html",
    license=CIFAR_LICENSE,
    citation=CIFAR_CITATION,
    pickles=CIFAR10_PICKLES,
    editions=(
        Edition(
            read=f"{READERS}.photos:read_cifar10",
            files=(_cifar10_archive(*CIFAR10_BATCHES),),
        ),
        Edition(
            read=f"{READERS}.photos:read_folders",
            files=(
                PublishedFile(name="cifar10/train"),
                PublishedFile(name="cifar10/test"),
            ),
        ),
        Edition(
            read=f"{READERS}.photos:read_parquet",
            files=(
                PublishedFile(name="cifar10/train-00000-of-00001.parquet"),
                PublishedFile(name="cifar10/test-00000-of-00001.parquet"),
            ),
        ),
    ),
)
CIFAR10_SMALL = CatalogEntry(
    name="cifar10_small",
    task="classification",
    rows=sum(SMALL),
    shape=(3, 32, 32),
    classes=10,
    class_names=CIFAR10_CLASSES,
    page=f"{CIFAR_URL}/cifar.html",
    license=CIFAR_LICENSE,
    citation=CIFAR_CITATION,
    pickles=CIFAR10_PICKLES,
    editions=(
        Edition(
            read=f"{READERS}.photos:read_cifar10_small",
            files=(_cifar10_archive(CIFAR10_BATCHES[0], CIFAR10_BATCHES[-1]),),
        ),
    ),
)

HEART = CatalogEntry(
    name="heart",
    task="classification",
    rows=920,
    shape=(23,),
    classes=2,
    class_names=("healthy", "disease"),
    sites="hospital",
    page=f"{UCI}/dataset/45",
    license=CC_BY,
    citation="Janosi, Steinbrunn, Pfisterer, Detrano: Heart Disease, 1989 (UCI)",
    editions=(
        Edition(
            read=f"{READERS}.files:read_heart",
            files=(
                PublishedFile(
                    name="heart+disease.zip",
                    url=f"{UCI}/static/public/45/heart+disease.zip",
                    members=tuple(
                        f"processed.{hospital}.data"
                        for hospital in ("cleveland", "hungarian", "switzerland", "va")
                    ),
                ),
            ),
        ),
    ),
)

ORGANS = (
    *("bladder", "femur-left", "femur-right", "heart", "kidney-left", "kidney-right"),
    *("liver", "lung-left", "lung-right", "pancreas", "spleen"),
)


def _medmnist(
    name: str,
    md5: str,
    rows: int,
    channels: int,
    class_names: tuple[str, ...],
    license: str = CC_BY,
) -> CatalogEntry:
    """Return a dataset of MedMNIST with one label for each image."""
    return CatalogEntry(
        name=name,
        task="classification",
        rows=rows,
        shape=(channels, 28, 28),
        classes=len(class_names),
        class_names=class_names,
        page="https://medmnist.com",
        license=license,
        citation="Yang et al.: MedMNIST v2, Scientific Data 10, 2023",
        editions=(
            Edition(
                read=f"{READERS}.files:read_medmnist",
                files=(
                    PublishedFile(
                        name=f"{name}.npz",
                        checksum=f"md5:{md5}",
                        url=f"https://zenodo.org/records/10519652/files/{name}.npz?download=1",
                    ),
                ),
            ),
        ),
    )


MEDMNIST = (
    _medmnist(
        "pathmnist",
        "a8b06965200029087d5bd730944a56c1",
        107_180,
        3,
        (
            *("adipose", "background", "debris", "lymphocytes", "mucus"),
            *("smooth muscle", "normal colon mucosa", "cancer-associated stroma"),
            "colorectal adenocarcinoma epithelium",
        ),
    ),
    _medmnist(
        "dermamnist",
        "0744692d530f8e62ec473284d019b0c7",
        10_015,
        3,
        (
            "actinic keratoses and intraepithelial carcinoma",
            *("basal cell carcinoma", "benign keratosis-like lesions", "dermatofibroma"),
            *("melanoma", "melanocytic nevi", "vascular lesions"),
        ),
        license="CC BY-NC 4.0",
    ),
    _medmnist(
        "octmnist",
        "c68d92d5b585d8d81f7112f81e2d0842",
        109_309,
        1,
        ("choroidal neovascularization", "diabetic macular edema", "drusen", "normal"),
    ),
    _medmnist(
        "pneumoniamnist",
        "28209eda62fecd6e6a2d98b1501bb15f",
        5_856,
        1,
        ("normal", "pneumonia"),
    ),
    _medmnist(
        "retinamnist",
        "bd4c0672f1bba3e3a89f0e4e876791e4",
        1_600,
        3,
        tuple("01234"),
    ),
    _medmnist(
        "breastmnist",
        "750601b1f35ba3300ea97c75c52ff8f6",
        780,
        1,
        ("malignant", "normal, benign"),
    ),
    _medmnist(
        "bloodmnist",
        "7053d0359d879ad8a5505303e11de1dc",
        17_092,
        3,
        (
            *("basophil", "eosinophil", "erythroblast", "immature granulocytes"),
            *("lymphocyte", "monocyte", "neutrophil", "platelet"),
        ),
    ),
    _medmnist(
        "tissuemnist",
        "ebe78ee8b05294063de985d821c1c34b",
        236_386,
        1,
        (
            "Collecting Duct, Connecting Tubule",
            *("Distal Convoluted Tubule", "Glomerular endothelial cells"),
            *("Interstitial endothelial cells", "Leukocytes", "Podocytes"),
            *("Proximal Tubule Segments", "Thick Ascending Limb"),
        ),
    ),
    _medmnist("organamnist", "866b832ed4eeba67bfb9edee1d5544e6", 58_850, 1, ORGANS),
    _medmnist("organcmnist", "0afa5834fb105f7705a7d93372119a21", 23_660, 1, ORGANS),
    _medmnist("organsmnist", "e5c39f1af030238290b9557d9503af9d", 25_221, 1, ORGANS),
)

ENTRIES = (*BUNDLED, MNIST, FASHION_MNIST, CIFAR10, CIFAR10_SMALL, HEART, *MEDMNIST)
