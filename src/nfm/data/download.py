"""Fetch a file over https: verified before it gets its name, nothing left behind on failure."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, OpenerDirector, Request, build_opener

from nfm.data.files import BLOCK, Pin, check_digest, hasher
from nfm.errors import DataError, EnvironmentProblem, UsageError

TIMEOUT = 60  # seconds without a byte
Open = Callable[[str], IO[bytes]]
Progress = Callable[[str, int, int | None], None]


class _OnlyHttps(HTTPRedirectHandler):
    """Follow a redirection to https alone."""

    def redirect_request(self, req: Request, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        check_https(newurl)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def check_https(url: str) -> None:
    if urlsplit(url).scheme != "https":
        raise UsageError(f"download: expected an https address, got {url!r}; there is no fallback to http")


def open_https(url: str) -> IO[bytes]:
    """Open `url`, which must be https, as must everything it redirects to."""
    check_https(url)
    opener: OpenerDirector = build_opener(_OnlyHttps)
    return opener.open(Request(url, headers={"User-Agent": "nfm"}), timeout=TIMEOUT)


def show(name: str, done: int, total: int | None) -> None:
    """Tell the progress on standard error: in place on a terminal, at the end elsewhere."""
    finished = total is not None and done >= total
    share = f" of {total / 1e6:.0f}" if total else ""
    if sys.stderr.isatty():
        sys.stderr.write(f"\rfetching {name}: {done / 1e6:.0f}{share} MB" + ("\n" if finished else ""))
    elif finished:
        sys.stderr.write(f"fetched {name}: {done / 1e6:.0f} MB\n")


def fetch(url: str, target: Path, pin: Pin, *, opened: Open = open_https, progress: Progress = show) -> Path:
    """Return `target` with the content of `url`, whose digest is the pinned one."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _fetch(url, target, pin, opened, progress)
    except (URLError, TimeoutError, ConnectionError) as error:
        raise EnvironmentProblem(
            f"{url} could not be fetched ({error}); put {pin.name} in place by hand"
        ) from error
    except OSError as error:
        raise EnvironmentProblem(f"{target} could not be written: {error}") from error
    return target


def _fetch(url: str, target: Path, pin: Pin, opened: Open, progress: Progress) -> None:
    draft = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        check_digest(_stream(url, draft, pin, opened, progress), pin, url)
        os.replace(draft, target)
    finally:
        draft.unlink(missing_ok=True)


def _stream(url: str, draft: Path, pin: Pin, opened: Open, progress: Progress) -> str:
    """Write what comes to `draft` and return its digest."""
    state = hasher(pin.algorithm)
    done = 0
    with opened(url) as source, draft.open("xb") as file:
        length = getattr(source, "headers", {}).get("Content-Length")
        total = int(length) if length else None
        while block := source.read(BLOCK):
            state.update(block)
            file.write(block)
            done += len(block)
            progress(pin.name, done, total)
    if total is not None and done != total:
        raise DataError(f"{url}: the connection broke after {done} of {total} bytes; try again")
    return str(state.hexdigest())
