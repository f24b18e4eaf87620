"""What MNIST and Fashion-MNIST are made of: files, checksums, class names, normalisation."""

from __future__ import annotations

from dataclasses import dataclass

from nfm.data.files import Pin


@dataclass(frozen=True)
class IdxSet:
    """Four files. contents: pins of them uncompressed; packed: of the compressed ones at `address`."""

    name: str
    folders: tuple[str, ...]
    classes: tuple[str, ...]
    mean: float
    std: float
    contents: tuple[Pin, ...]
    packed: tuple[Pin, ...]
    address: str


FILES = (
    "train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte",
)  # fmt: skip


def pins(digests: str, ending: str = "") -> tuple[Pin, ...]:
    return tuple(Pin(name + ending, digest) for name, digest in zip(FILES, digests.split(), strict=True))


MNIST = IdxSet(
    name="mnist",
    folders=("mnist", "MNIST/raw"),
    classes=tuple("0123456789"),
    mean=0.1307,  # of the 60,000 training images' pixels
    std=0.3081,
    contents=pins(
        """ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db
        65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5
        0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7
        ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"""
    ),
    packed=pins(  # tensorflow_datasets/url_checksums/mnist.txt
        """440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609
        3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c
        8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6
        f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6""",
        ".gz",
    ),
    address="https://ossci-datasets.s3.amazonaws.com/mnist/",
)

FASHION_CLASSES = (
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
)  # fmt: skip

FASHION = IdxSet(
    name="fashion_mnist",
    folders=("fashion-mnist", "fashion_mnist", "FashionMNIST/raw"),
    classes=FASHION_CLASSES,
    mean=0.2860,  # of the 60,000 training images' pixels
    std=0.3530,
    contents=pins(  # taken from Debian's dataset-fashion-mnist, compressed anew there
        """c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888
        bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9
        5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b
        0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34"""
    ),
    packed=pins(  # tensorflow_datasets/url_checksums/fashion_mnist.txt
        """3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84
        a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845
        346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073
        67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5""",
        ".gz",
    ),
    address="https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
)
