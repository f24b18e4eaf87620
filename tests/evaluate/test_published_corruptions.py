"""The generated files of CIFAR-10-C are the published ones to the byte, for every family without chance."""

from __future__ import annotations

from pathlib import Path

import pytest

from nfm.data import load
from nfm.evaluate.corruptions import DETERMINISTIC, write_cifar_c

# MD5 of the published files: Hendrycks and Dietterich 2019, Zenodo record 2535967.
PUBLISHED = {
    "brightness": "0a81ef75e0b523c3383219c330a85d48",
    "contrast": "3c8262171c51307f916c30a3308235a8",
    "defocus_blur": "7d1322666342a0702b1957e92f6254bc",
    "gaussian_blur": "c33370155bc9b055fb4a89113d3c559d",
    "jpeg_compression": "2b9cc4c864e0193bb64db8d7728f8187",
    "labels": "c439b113295ed5254878798ffe28fd54",
    "pixelate": "0f14f7e2db14288304e1de10df16832f",
    "saturate": "1cfae0964219c5102abbb883e538cc56",
    "zoom_blur": "6ea8e63f1c5cdee1517533840641641b",
}


def test_every_family_without_chance_has_a_published_digest() -> None:
    assert {*PUBLISHED} - {"labels"} == {*DETERMINISTIC}


@pytest.mark.slow
@pytest.mark.parametrize("family", sorted(DETERMINISTIC))
def test_generated_files_have_the_published_digests(family: str, real_data: Path, tmp_path: Path) -> None:
    test = load("cifar10", root=str(real_data), validation=0).test
    rows = write_cifar_c(test, tmp_path, [family])
    assert {Path(row["file"]).stem: row["md5"] for row in rows} == {
        name: PUBLISHED[name] for name in ("labels", family)
    }
