"""What CIFAR-10-C and CIFAR-100-C are made of (Hendrycks & Dietterich 2019): corruptions, files, checksums.

The archives' SHA-256 are those of tensorflow_datasets/url_checksums. Of the single files only MD5 are
published (torch-uncertainty lists them).
"""

from __future__ import annotations

from dataclasses import dataclass

from nfm.data.files import Pin

SEVERITIES = (1, 2, 3, 4, 5)
PER_SEVERITY = 10_000
STANDARD = (
    "gaussian_noise", "shot_noise", "impulse_noise", "defocus_blur", "glass_blur", "motion_blur", "zoom_blur",
    "snow", "frost", "fog", "brightness", "contrast", "elastic_transform", "pixelate", "jpeg_compression",
)  # fmt: skip
EXTRA = ("speckle_noise", "gaussian_blur", "spatter", "saturate")
CORRUPTIONS = STANDARD + EXTRA
# The six that the authors of Noisy Feature Mixup report.
AUTHORS = ("gaussian_noise", "impulse_noise", "shot_noise", "speckle_noise", "snow", "jpeg_compression")


@dataclass(frozen=True)
class CorruptedFiles:
    """One published set; md5: of labels.npy and of each corruption's file, in the order of CORRUPTIONS."""

    name: str
    folder: str
    address: str
    archive: Pin
    md5: str

    def pin(self, name: str) -> Pin:
        """Return the pin of name.npy."""
        digest = self.md5.split()[("labels", *CORRUPTIONS).index(name)]
        return Pin(f"{name}.npy", digest, "md5")


CIFAR10_C = CorruptedFiles(
    name="cifar10-c",
    folder="CIFAR-10-C",
    address="https://zenodo.org/records/2535967/files/CIFAR-10-C.tar",
    archive=Pin("CIFAR-10-C.tar", "c72763e101c723b7c507b96205f7e938912a5d587376173b825850cf3cb876a7"),
    md5="""c439b113295ed5254878798ffe28fd54
    ecaf8b9a2399ffeda7680934c33405fd 3a7239bb118894f013d9bf1984be7f11 2090e01c83519ec51427e65116af6b1a
    7d1322666342a0702b1957e92f6254bc 7361fb4019269e02dbf6925f083e8629 fffa5f852ff7ad299cfe8a7643f090f4
    6ea8e63f1c5cdee1517533840641641b bb238de8555123da9c282dea23bd6e55 31f6ab3bce1d9934abfb0cc13656f141
    7b397314b5670f825465fbcd1f6e9ccd 0a81ef75e0b523c3383219c330a85d48 3c8262171c51307f916c30a3308235a8
    9421657c6cd452429cf6ce96cc412b5f 0f14f7e2db14288304e1de10df16832f 2b9cc4c864e0193bb64db8d7728f8187
    ef00b87611792b00df09c0b0237a1e30 c33370155bc9b055fb4a89113d3c559d 8a5a3903a7f8f65b59501a6093b4311e
    1cfae0964219c5102abbb883e538cc56""",
)

CIFAR100_C = CorruptedFiles(
    name="cifar100-c",
    folder="CIFAR-100-C",
    address="https://zenodo.org/records/3555552/files/CIFAR-100-C.tar",
    archive=Pin("CIFAR-100-C.tar", "30ee6543a1bfd049fa33834b7c1ada301e7064b7fbe8fc38340eb8b62ced4b33"),
    md5="""bb4026e9ce52996b95f439544568cdb2
    ecc4d366eac432bdf25c024086f5e97d b0a1fa6e1e465a747c1b204b1914048a 3b3c210ddfa0b5cb918ff4537a429fef
    d923e3d9c585a27f0956e2f2ad832564 0bf384f38e5ccbf8dd479d9059b913e1 732a7e2e54152ff97c742d4c388c5516
    0204613400c034a81c4830d5df81cb82 0237be164583af146b7b144e73b43465 3a39c6823bdfaa0bf8b12fe7004b8117
    4efc7ebd5e82b028bdbe13048e3ea564 f22d7195aecd6abb541e27fca230c171 322bb385f1d05154ee197ca16535f71e
    a0792bd6581f6810878be71acedfc65a 96c00c60f144539e14cffb02ddbd0640 c851b7f1324e1d2ffddeb76920576d11
    e3f215b1a0f9fd9fd6f0d1cf94a7ce99 5204ba0d557839772ef5a4196a052c3e 12ccf41d62564d36e1f6a6ada5022728
    c0697e9fdd646916a61e9c312c77bf6b""",
)
