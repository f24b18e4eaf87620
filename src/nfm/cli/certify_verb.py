"""``nfm certify RUN... --sigma S``: how far from each example a network, smoothed by noise, is sure of its class."""

from __future__ import annotations

import argparse
from pathlib import Path

from nfm.cli.requesting import SOURCE, add_data_flags, add_weights_flags, check_batch_size, make_request

EPILOG = """Gaussian smoothing (Cohen, Rosenfeld & Kolter 2019): the class that a network tells most often under noise
of deviation sigma, and the l2 radius within which no change of the pixels can make it another, wrong with
probability alpha at most. sigma and radii are in pixels of [0, 1]. A network that was not trained with noise of that
size abstains often. Certified examples are kept and not certified again: the same command goes on where it was
stopped, and a larger --limit adds to what is there."""


def add_arguments(options: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    options.epilog = EPILOG
    options.add_argument("sources", nargs="+", metavar="RUN", help=SOURCE)
    add_data_flags(options)
    options.add_argument(
        "--sigma", required=True, metavar="S,S", help="deviations of the noise, in pixels of [0, 1]"
    )
    options.add_argument("--n", type=int, default=10_000, help="draws that estimate (default 10000)")
    options.add_argument("--n0", type=int, default=100, help="draws that choose the class (default 100)")
    options.add_argument(
        "--alpha", type=float, default=0.001, help="a certificate is wrong that often at most (default 0.001)"
    )
    options.add_argument(
        "--limit", type=int, metavar="N", help="certify N examples of the test part (default: all)"
    )
    options.add_argument("--radii", metavar="R,R", help="columns of the table (default: round ones)")
    options.add_argument(
        "--seed", type=int, default=0, help="seed of the noise and of the sample of examples"
    )
    options.add_argument("--batch-size", type=int, default=500, help="draws a batch; it changes no result")
    options.add_argument("--force", action="store_true", help="certify what is refused all the same, flagged")
    options.add_argument("--out", type=Path, help="where to keep it (default RUN/certified-sigmaS-nN)")
    options.add_argument("--overwrite", action="store_true", help="certify anew what --out holds")
    options.add_argument("--name", help="what tables call it (default: the scheme of the run)")
    options.add_argument("--picture", type=Path, help="draw the curves: .png, .svg or .pdf")
    add_weights_flags(options)


def run(given: argparse.Namespace) -> None:
    """Certify every run at every sigma; examples certified before are not certified again."""
    from nfm.cli.candidates import find_candidate
    from nfm.cli.certifying import Options, certify_candidate, check_one, draw, parse_numbers, show
    from nfm.evaluate.certificates import check_radii
    from nfm.evaluate.certify import Smoothing
    from nfm.plots.canvas import check_suffix
    from nfm.randomness import check_seed

    if given.picture is not None:
        check_suffix(given.picture)
    sigmas = parse_numbers("--sigma", given.sigma)
    radii = parse_numbers("--radii", given.radii) if given.radii is not None else None
    check_radii(radii)
    check_one(given.sources, sigmas, out=given.out, name=given.name)
    ways = [Smoothing(sigma, given.n, given.n0, given.alpha) for sigma in sigmas]
    requests = [make_request(given, source) for source in given.sources]
    options = Options(
        limit=given.limit, seed=check_seed(given.seed), batch_size=check_batch_size(given), force=given.force,
        out=given.out, overwrite=given.overwrite, name=given.name,
    )  # fmt: skip
    done = []
    for request in requests:
        candidate = find_candidate(request)
        done += [certify_candidate(candidate, how, options) for how in ways]
    certified = [certification for certification, _ in done]
    print("\n".join([show(certified, radii), "", *(f"rows: {out}" for _, out in done)]))
    if given.picture is not None:
        print(f"picture: {draw(certified, given.picture)}")
