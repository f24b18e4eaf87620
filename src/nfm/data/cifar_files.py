"""What CIFAR-10 and CIFAR-100 are made of: layouts, checksums, class names, normalisation.

The SHA-256 of the pickled files were taken from files whose MD5 are the published ones (torchvision), those
of the binary files from the same images in that layout; they equal the values that torchvision.rb publishes.
The archives' are those of Keras.
"""

from __future__ import annotations

from dataclasses import dataclass

from nfm.data.files import Pin

ADDRESS = "https://www.cs.toronto.edu/~kriz/"


@dataclass(frozen=True)
class Layout:
    """A folder of files: the training part's in order, the test part's, and others that come with them."""

    folder: str
    train: tuple[Pin, ...]
    test: Pin
    others: tuple[Pin, ...] = ()

    @property
    def pins(self) -> tuple[Pin, ...]:
        return (*self.train, self.test)


@dataclass(frozen=True)
class Cifar:
    """One of the two sets. labels: their key in a pickle; label_bytes: how many precede a binary image."""

    name: str
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    python: Layout
    binary: Layout
    archive: Pin
    labels: str
    label_bytes: int


# What the authors' code used for both CIFARs until 2021-11-19, and so the paper's tables. These deviations
# are means over images of each image's own deviation.
AUTHORS_MEAN, AUTHORS_STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)

CIFAR10 = Cifar(
    name="cifar10",
    classes=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    mean=(0.4914, 0.4822, 0.4465),  # of the 50,000 training images' pixels
    std=(0.2470, 0.2435, 0.2616),
    python=Layout(
        folder="cifar-10-batches-py",
        train=(
            Pin("data_batch_1", "54636561a3ce25bd3e19253c6b0d8538147b0ae398331ac4a2d86c6d987368cd"),
            Pin("data_batch_2", "766b2cef9fbc745cf056b3152224f7cf77163b330ea9a15f9392beb8b89bc5a8"),
            Pin("data_batch_3", "0f00d98ebfb30b3ec0ad19f9756dc2630b89003e10525f5e148445e82aa6a1f9"),
            Pin("data_batch_4", "3f7bb240661948b8f4d53e36ec720d8306f5668bd0071dcb4e6c947f78e9682b"),
            Pin("data_batch_5", "d91802434d8376bbaeeadf58a737e3a1b12ac839077e931237e0dcd43adcb154"),
        ),
        test=Pin("test_batch", "f53d8d457504f7cff4ea9e021afcf0e0ad8e24a91f3fc42091b8adef61157831"),
        others=(Pin("batches.meta", "f962466ef690d46b226450fb9aadc74ba4bc64a76aa526b5827fe4bc5c7125cb"),),
    ),
    binary=Layout(
        folder="cifar-10-batches-bin",
        train=(
            Pin("data_batch_1.bin", "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5"),
            Pin("data_batch_2.bin", "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed"),
            Pin("data_batch_3.bin", "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67"),
            Pin("data_batch_4.bin", "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48"),
            Pin("data_batch_5.bin", "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add"),
        ),
        test=Pin("test_batch.bin", "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"),
    ),
    archive=Pin("cifar-10-python.tar.gz", "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce"),
    labels="labels",
    label_bytes=1,
)

CIFAR100_CLASSES = """
    apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel
    can castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur
    dolphin elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion
    lizard lobster man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree
    pear pickup_truck pine_tree plain plate poppy porcupine possum rabbit raccoon ray road rocket rose sea
    seal shark shrew skunk skyscraper snail snake spider squirrel streetcar sunflower sweet_pepper table
    tank telephone television tiger tractor train trout tulip turtle wardrobe whale willow_tree wolf woman
    worm
"""

CIFAR100 = Cifar(
    name="cifar100",
    classes=tuple(CIFAR100_CLASSES.split()),
    mean=(0.5071, 0.4865, 0.4409),  # of the 50,000 training images' pixels
    std=(0.2673, 0.2564, 0.2762),
    python=Layout(
        folder="cifar-100-python",
        train=(Pin("train", "735e79b04f092ca3d2e6d07f368c0a7d70d48c48d28865950cc24454cf45129b"),),
        test=Pin("test", "4b67687d9933c4db8f0831104447f15b93774f4f464bd0516f0f0f2ac83b7864"),
        others=(Pin("meta", "a5d4786345c961390f865e93b434dbd5c6904ce880667e0cb888c97d449f28b9"),),
    ),
    binary=Layout(
        folder="cifar-100-binary",
        train=(Pin("train.bin", "f31298fc616915fa142368359df1c4ca2ae984d6915ca468b998a5ec6aeebf29"),),
        test=Pin("test.bin", "d8b1e6b7b3bee4020055f0699b111f60b1af1e262aeb93a0b659061746f8224a"),
    ),
    archive=Pin(
        "cifar-100-python.tar.gz", "85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7"
    ),
    labels="fine_labels",
    label_bytes=2,
)
