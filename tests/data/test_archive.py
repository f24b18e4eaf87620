"""Hostile archives write nothing, anywhere; honest ones come out whole."""

import io
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from nfm.data.archive import extract
from nfm.errors import DataError

Change = Callable[[tarfile.TarInfo], None]


def tar(path: Path, *members: tuple[str, bytes, Change | None]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, content, change in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            if change:
                change(info)
            archive.addfile(info, io.BytesIO(content) if info.size == len(content) else None)
    return path


def of_type(kind: bytes, target: str = "") -> Change:
    def change(info: tarfile.TarInfo) -> None:
        info.type, info.linkname, info.size = kind, target, 0

    return change


def sparse(info: tarfile.TarInfo) -> None:
    info.type = tarfile.GNUTYPE_SPARSE


def huge(info: tarfile.TarInfo) -> None:
    info.size = 10**13


def setuid(info: tarfile.TarInfo) -> None:
    info.mode = 0o6777


GOOD = ("set/a.txt", b"alpha", None)
HOSTILE = {
    "parent": [("../evil", b"x", None)],
    "deep parent": [("set/../../evil", b"x", None)],
    "absolute": [("/tmp/evil-nfm", b"x", None)],
    "symlink": [("set/link", b"", of_type(tarfile.SYMTYPE, "/etc"))],
    "symlink then file": [
        ("set/link", b"", of_type(tarfile.SYMTYPE, "../..")),
        ("set/link/evil", b"x", None),
    ],
    "hardlink": [("set/link", b"", of_type(tarfile.LNKTYPE, "/etc/passwd"))],
    "device": [("set/dev", b"", of_type(tarfile.CHRTYPE))],
    "fifo": [("set/fifo", b"", of_type(tarfile.FIFOTYPE))],
    "twice": [("set/b", b"1", None), ("set/b", b"2", None)],
    "twice but for case": [("set/b", b"1", None), ("SET/B", b"2", None)],
    "backslash": [("set\\..\\..\\evil", b"x", None)],
    "sparse": [("set/holes", b"x" * 512, sparse)],
    "ten terabytes": [("set/huge", b"x", huge)],
    "file and folder": [("set/a.txt/inner", b"x", None)],
    "drive": [("c:evil", b"x", None)],
}


def files_below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir()}


@pytest.mark.parametrize("case", sorted(HOSTILE))
def test_a_hostile_tar_is_refused_whole(case: str, tmp_path: Path) -> None:
    archive = tar(tmp_path / "evil.tar.gz", GOOD, *HOSTILE[case])
    with pytest.raises(DataError, match=r"evil\.tar\.gz"):
        extract(archive, tmp_path / "out" / "here")
    assert files_below(tmp_path) == {"evil.tar.gz"}
    assert not Path("/tmp/evil-nfm").exists()


def test_an_honest_tar_comes_out_whole_and_harmless(tmp_path: Path) -> None:
    archive = tar(
        tmp_path / "good.tar.gz",
        ("set", b"", of_type(tarfile.DIRTYPE)),
        GOOD,
        ("set/naïve.txt", b"beta", setuid),
        ("./set/inner/c", b"gamma", None),
    )
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("kept")
    files = extract(archive, tmp_path / "out")
    assert [path.read_bytes() for path in files] == [b"alpha", b"beta", b"gamma"]
    assert files_below(tmp_path / "out") == {"mine", "set/a.txt", "set/naïve.txt", "set/inner/c"}
    assert (tmp_path / "out" / "set" / "naïve.txt").stat().st_mode & 0o7000 == 0


def test_too_much_is_refused(tmp_path: Path) -> None:
    archive = tar(tmp_path / "big.tar.gz", ("zeros", bytes(100_000), None))
    with pytest.raises(DataError, match="expected at most 99999 bytes, got 100000"):
        extract(archive, tmp_path / "out", max_bytes=99_999)
    assert extract(archive, tmp_path / "out", max_bytes=100_000)


@pytest.mark.parametrize("ending", [".tar.gz", ".zip"])
def test_a_torn_archive_is_refused_and_leaves_nothing(tmp_path: Path, ending: str) -> None:
    archive = tmp_path / f"torn{ending}"
    if ending == ".zip":
        with zipfile.ZipFile(archive, "w") as zipped:
            zipped.writestr("a", "x" * 5000)
    else:
        tar(archive, ("a", bytes(range(256)) * 400, None))
    archive.write_bytes(archive.read_bytes()[:-200])
    with pytest.raises(DataError, match="whole tar or zip"):
        extract(archive, tmp_path / "out")
    assert files_below(tmp_path) == {archive.name}


@pytest.mark.parametrize("name", ["../evil", "/evil", "set/../../evil"])
def test_a_zip_that_leaves_its_folder_is_refused(tmp_path: Path, name: str) -> None:
    archive = tmp_path / "evil.zip"
    with zipfile.ZipFile(archive, "w") as zipped:
        zipped.writestr("a", "fine")
        zipped.writestr(name, "x")
    with pytest.raises(DataError, match="leaves the target folder"):
        extract(archive, tmp_path / "out")
    assert files_below(tmp_path) == {"evil.zip"}


def test_a_link_in_a_zip_is_refused(tmp_path: Path) -> None:
    archive = tmp_path / "link.zip"
    link = zipfile.ZipInfo("link")
    link.external_attr = 0o120777 << 16
    with zipfile.ZipFile(archive, "w") as zipped:
        zipped.writestr(link, "/etc/passwd")
    with pytest.raises(DataError, match="neither a regular file"):
        extract(archive, tmp_path / "out")


def test_an_honest_zip_comes_out(tmp_path: Path) -> None:
    archive = tmp_path / "good.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as zipped:
        zipped.writestr("set/", "")
        zipped.writestr("set/a", "alpha")
    assert [path.read_text() for path in extract(archive, tmp_path / "out")] == ["alpha"]
