"""Names and metadata of the datasets, which the entry points of this distribution list."""

from __future__ import annotations

from fallow.catalog import CatalogEntry, Edition, PublishedFile
from fallow_papers.datasets.sources import OTHER_FILES, SOURCES

READERS = "fallow_papers.datasets"
CIFAR_URL = "https://www.cs.toronto.edu/~kriz"
SVHN_URL = "http://ufldl.stanford.edu/housenumbers"
TOY = "https://scikit-learn.org/stable/datasets/toy_dataset.html"


def _images(
    name: str,
    *files: PublishedFile,
    rows: int,
    shape: tuple[int, ...],
    classes: int,
    read: str,
    page: str,
    citation: str,
    class_names: tuple[str, ...] = (),
    sites: str = "",
    pickles: tuple[str, ...] = (),
    license: str = "none stated; research use with citation",
) -> CatalogEntry:
    return CatalogEntry(
        name=name,
        task="classification",
        rows=rows,
        shape=shape,
        classes=classes,
        class_names=class_names,
        sites=sites,
        page=page,
        license=license,
        citation=citation,
        pickles=pickles,
        editions=(Edition(files=files, read=f"{READERS}.{read}"),),
    )


def _table(
    name: str,
    *,
    rows: int,
    columns: int,
    site: str = "",
) -> CatalogEntry:
    """Return an entry for a regression table of `SOURCES`."""
    source = SOURCES[name]
    reader = f"{READERS}.published:read_published"
    files = (source.file, *OTHER_FILES.get(name, ()))
    return CatalogEntry(
        name=name,
        task="regression",
        rows=rows,
        shape=(columns,),
        sites=site,
        page=source.page,
        license=source.license,
        citation=source.citation,
        editions=tuple(Edition(files=(file,), read=reader) for file in files),
    )


CINIC_CLASSES = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)
FEMNIST = PublishedFile(name="femnist/all_data_0.json")
FEMNIST_PAGE = "https://leaf.cmu.edu"
FEMNIST_CITATION = "Caldas et al.: LEAF, 2018, arXiv:1812.01097"
LIST = (
    CatalogEntry(
        name="digit_angle",
        task="regression",
        rows=1797,
        shape=(1, 8, 8),
        sites="digit",
        source="bundled",
        page=TOY,
        license="BSD-3-Clause (scikit-learn)",
        editions=(Edition(read=f"{READERS}.digit_angle:read_digit_angle"),),
    ),
    _images(
        "cifar100",
        PublishedFile(
            name="cifar-100-binary.tar.gz",
            size=168_513_733,
            checksum="sha256:58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
            url=f"{CIFAR_URL}/cifar-100-binary.tar.gz",
            members=("cifar-100-binary/train.bin", "cifar-100-binary/test.bin"),
        ),
        PublishedFile(name="cifar-100-binary/fine_label_names.txt", is_optional=True),
        rows=60_000,
        shape=(3, 32, 32),
        classes=100,
        read="photos:read_cifar100",
        page=f"{CIFAR_URL}/cifar.html",
        citation="Krizhevsky: Learning Multiple Layers of Features from Tiny Images, 2009",
        pickles=("cifar-100-python.tar.gz", "cifar-100-python"),
    ),
    _images(
        "cinic10",
        PublishedFile(name="cinic-10"),
        rows=270_000,
        shape=(3, 32, 32),
        classes=10,
        class_names=CINIC_CLASSES,
        read="cinic:read_cinic10",
        page="https://datashare.ed.ac.uk/handle/10283/3192",
        license="MIT; images of ImageNet for research only",
        citation="Darlow et al.: CINIC-10 is not ImageNet or CIFAR-10, 2018",
    ),
    _images(
        "svhn",
        PublishedFile(
            name="train_32x32.mat",
            size=182_040_794,
            checksum="sha256:435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8",
            url=f"{SVHN_URL}/train_32x32.mat",
        ),
        PublishedFile(
            name="test_32x32.mat",
            size=64_275_384,
            checksum="sha256:cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b",
            url=f"{SVHN_URL}/test_32x32.mat",
        ),
        rows=99_289,
        shape=(3, 32, 32),
        classes=10,
        class_names=tuple("0123456789"),
        read="photos:read_svhn",
        page=f"{SVHN_URL}/",
        license="for non-commercial use",
        citation="Netzer et al.: Reading Digits in Natural Images, NIPS workshop 2011",
    ),
    _images(
        "femnist",
        FEMNIST,
        rows=805_263,
        shape=(1, 28, 28),
        classes=62,
        sites="writer",
        read="femnist:read_femnist",
        page=FEMNIST_PAGE,
        license="BSD-2-Clause (LEAF)",
        citation=FEMNIST_CITATION,
    ),
    _images(
        "femnist_letters",
        FEMNIST,
        rows=40_000,
        shape=(1, 28, 28),
        classes=10,
        sites="writer",
        read="femnist:read_femnist_letters",
        page=FEMNIST_PAGE,
        license="BSD-2-Clause (LEAF)",
        citation=FEMNIST_CITATION,
    ),
    _table("protein", rows=45_730, columns=9),
    _table("kegg", rows=63_608, columns=27),
    _table("diamonds", rows=53_940, columns=9),
    _table("diamonds_onehot", rows=53_940, columns=29),
    _table("kin40k", rows=40_000, columns=8),
    _table("bike", rows=17_379, columns=13),
    _table("elevators", rows=16_599, columns=18),
    _table("pol", rows=15_000, columns=26),
    _table("sarcos", rows=4_449, columns=21),
    _table("wine_red", rows=1_599, columns=11),
    _table("california", rows=20_640, columns=9, site="coast zone"),
    _table("parkinsons", rows=5_875, columns=19, site="patient"),
    _table("ct", rows=53_500, columns=379, site="patient"),
    _table("kegg_undirected", rows=64_608, columns=27),
    _table("online_video", rows=68_784, columns=26),
    _table("wec_sydney", rows=72_000, columns=48),
    _table("sarcos_full", rows=44_484, columns=21),
    _table("stock", rows=59_049, columns=9),
    _table("mlr_knn_rng", rows=111_753, columns=132),
)
ENTRIES = {entry.name: entry for entry in LIST}
