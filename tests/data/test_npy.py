"""Array files whose headers lie, or hold pickles, are refused before memory is taken."""

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest

from nfm.data.npy import map_npy, names_in_npz, read_npz
from nfm.errors import DataError


def npy(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=True)
    return stream.getvalue()


def lying(shape: tuple[int, ...]) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": "|u1", "fortran_order": False, "shape": shape})
    return stream.getvalue() + b"12345"


BAD = {
    "objects": (npy(np.array([{}, None], dtype=object)), "dtype object"),
    "ten terabytes": (lying((10**13,)), "the header promises"),
    "negative": (lying((-5,)), "the header promises"),
    "too short": (lying((6,)), "the header promises"),
    "too long": (lying((4,)), "the header promises"),
    "html": (b"<html>not found</html>", "expected a .npy array"),
    "empty": (b"", "expected a .npy array"),
}


@pytest.mark.parametrize("case", sorted(BAD))
def test_a_bad_npy_is_refused(case: str, tmp_path: Path) -> None:
    content, message = BAD[case]
    path = tmp_path / "x.npy"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        map_npy(path)


@pytest.mark.parametrize("case", sorted(BAD))
def test_a_bad_member_of_an_npz_is_refused(case: str, tmp_path: Path) -> None:
    content, message = BAD[case]
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("good.npy", npy(np.arange(3)))
        archive.writestr("bad.npy", content)
    with pytest.raises(DataError, match=message):
        read_npz(tmp_path / "x.npz")


def test_other_files_are_no_npz(tmp_path: Path) -> None:
    (tmp_path / "x.npz").write_bytes(b"PK but no zip")
    with pytest.raises(DataError, match=r"expected a \.npz file"):
        read_npz(tmp_path / "x.npz")


@pytest.mark.parametrize(
    "array",
    [
        np.arange(24, dtype=np.uint8).reshape(2, 3, 4),
        np.asfortranarray(np.eye(3)),
        np.array(["a", "bc"]),
        np.array(5),
    ],
)
def test_good_arrays_are_numpys(array: np.ndarray, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", array)
    np.savez_compressed(tmp_path / "x.npz", first=array, second=array)
    found = read_npz(tmp_path / "x.npz")
    assert names_in_npz(tmp_path / "x.npz") == set(found) == {"first", "second"}
    assert found["first"].dtype == array.dtype
    assert np.array_equal(found["first"], array)
    if array.ndim:
        assert np.array_equal(map_npy(tmp_path / "x.npy"), array)
