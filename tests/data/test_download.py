"""Downloads: https only, verified before they get their name, nothing left on failure. No network."""

import hashlib
import io
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import IO
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from nfm.data import download
from nfm.data.download import fetch, open_https
from nfm.data.files import Pin
from nfm.errors import DataError, EnvironmentProblem, UsageError

CONTENT = bytes(range(256)) * 9000  # 2.3 MB: several blocks
PIN = Pin("set.tar", hashlib.sha256(CONTENT).hexdigest())


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(CONTENT)))
        self.end_headers()
        self.wfile.write(CONTENT[: len(CONTENT) // 2] if self.path == "/short" else CONTENT)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    """A loopback server that stands for the https host."""
    with HTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()
        thread.join()


def loopback(url: str) -> IO[bytes]:
    return urlopen(url, timeout=10)  # type: ignore[no-any-return]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_comes_whole_with_progress(server: str, tmp_path: Path) -> None:
    told: list[tuple[str, int, int | None]] = []
    path = fetch(
        f"{server}/set.tar",
        tmp_path / "new" / "set.tar",
        PIN,
        opened=loopback,
        progress=lambda *now: told.append(now),
    )
    assert path.read_bytes() == CONTENT
    assert names(path.parent) == ["set.tar"]
    assert told[-1] == ("set.tar", len(CONTENT), len(CONTENT))
    assert len(told) > 2


def test_a_broken_connection_leaves_nothing_and_a_second_try_works(server: str, tmp_path: Path) -> None:
    with pytest.raises((DataError, EnvironmentProblem)):
        fetch(f"{server}/short", tmp_path / "set.tar", PIN, opened=loopback)
    assert names(tmp_path) == []
    assert fetch(f"{server}/set.tar", tmp_path / "set.tar", PIN, opened=loopback).is_file()


def test_a_short_answer_is_noticed_by_its_length(tmp_path: Path) -> None:
    class Short(io.BytesIO):
        headers = {"Content-Length": "100"}  # noqa: RUF012

    with pytest.raises(DataError, match="broke after 5 of 100 bytes"):
        fetch("https://host/x", tmp_path / "x", PIN, opened=lambda url: Short(b"12345"))
    assert names(tmp_path) == []


def test_other_content_is_refused_before_it_gets_its_name(tmp_path: Path) -> None:
    (tmp_path / "set.tar").write_bytes(b"old")
    with pytest.raises(DataError, match=r"expected sha256 .* got .*damaged"):
        fetch("https://host/x", tmp_path / "set.tar", PIN, opened=lambda url: io.BytesIO(CONTENT + b"!"))
    assert names(tmp_path) == ["set.tar"]
    assert (tmp_path / "set.tar").read_bytes() == b"old"


def test_an_md5_pin_is_held_too(tmp_path: Path) -> None:
    pin = Pin("x", hashlib.md5(CONTENT).hexdigest(), "md5")
    assert fetch("https://host/x", tmp_path / "x", pin, opened=lambda url: io.BytesIO(CONTENT)).is_file()
    with pytest.raises(DataError, match="expected md5"):
        fetch("https://host/x", tmp_path / "y", pin, opened=lambda url: io.BytesIO(b""))


@pytest.mark.parametrize("url", ["http://host/x", "ftp://host/x", "file:///etc/passwd", "/etc/passwd"])
def test_only_https_is_opened(url: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no fallback to http"):
        fetch(url, tmp_path / "x", PIN)


def test_a_redirection_to_http_is_refused() -> None:
    handler = download._OnlyHttps()
    with pytest.raises(UsageError, match="no fallback"):
        handler.redirect_request(None, None, 302, "", {}, "http://host/x")  # type: ignore[arg-type]


def test_an_unreachable_host_is_an_environment_problem(tmp_path: Path) -> None:
    def refuse(url: str) -> IO[bytes]:
        raise URLError("no route")

    with pytest.raises(EnvironmentProblem, match=r"no route.*by hand"):
        fetch("https://host/x", tmp_path / "x", PIN, opened=refuse)
    assert names(tmp_path) == []


def test_a_full_disk_is_an_environment_problem(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentProblem, match="could not be written"):
        fetch("https://host/x", tmp_path / "file" / "x", PIN, opened=lambda url: io.BytesIO(CONTENT))


def test_progress_is_told_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    download.show("set.tar", 1_000_000, 2_000_000)
    download.show("set.tar", 2_000_000, 2_000_000)
    assert capsys.readouterr().err == "fetched set.tar: 2 MB\n"


def test_every_built_in_address_is_https() -> None:
    from nfm.data import cifar_c_files, cifar_files, idx_files, imagenet, svhn

    addresses = [
        cifar_files.ADDRESS, svhn.ADDRESS, imagenet.TINY_ADDRESS, idx_files.MNIST.address,
        idx_files.FASHION.address, cifar_c_files.CIFAR10_C.address, cifar_c_files.CIFAR100_C.address,
    ]  # fmt: skip
    assert all(address.startswith("https://") for address in addresses)
    assert callable(open_https)
