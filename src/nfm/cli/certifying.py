"""What ``nfm certify`` does once its flags are read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nfm.cli.candidates import Candidate
from nfm.cli.evaluating import kept_in, watched
from nfm.errors import EnvironmentProblem, UsageError
from nfm.evaluate.certificates import Certification, round_radii
from nfm.evaluate.certify import Smoothing, certify
from nfm.plots.canvas import save_figure
from nfm.plots.certified import certified_curves, certified_table


@dataclass(frozen=True)
class Options:
    """What to certify, and where to keep it."""

    limit: int | None = None
    seed: int = 0
    batch_size: int = 500
    force: bool = False
    out: Path | None = None
    overwrite: bool = False
    name: str | None = None


def parse_numbers(flag: str, text: str) -> list[float]:
    """Return numbers with commas between them, each once.

    >>> parse_numbers("--sigma", "0.1,0.25")
    [0.1, 0.25]
    """
    try:
        return list(dict.fromkeys(float(word) for word in text.split(",")))
    except ValueError:
        raise UsageError(
            f"{flag}: expected numbers with commas between them, such as 0.1,0.25, got {text!r}"
        ) from None


def check_one(sources: Sequence[str], sigmas: Sequence[float], *, out: Path | None, name: str | None) -> None:
    """Refuse one folder or one name for several things."""
    if out is not None and len(sources) * len(sigmas) > 1:
        raise UsageError(
            f"--out: expected one RUN and one --sigma, got {len(sources)} and {len(sigmas)}; leave it out, and each "
            "is kept beneath its run"
        )
    if name is not None and len(sources) > 1:
        raise UsageError(f"--name: expected one RUN, got {len(sources)}")


def certify_candidate(candidate: Candidate, how: Smoothing, options: Options) -> tuple[Certification, Path]:
    """Certify `candidate`; return what was found and where it is kept."""
    if candidate.flags and not options.force:
        raise UsageError(
            f"refused: {', '.join(candidate.flags)}; --force certifies it all the same, with a flag in every row"
        )
    out = options.out or default_out(candidate, how, options.seed)
    scheme = options.name or candidate.scheme
    tags = {"scheme": scheme, "train_seed": candidate.train_seed, "data": candidate.data.name}
    with (
        kept_in(out, what="examples certified"),
        watched(f"{scheme} on {candidate.data.name}") as progress,
    ):
        found = certify(
            candidate.model, candidate.data.test, how, limit=options.limit, seed=options.seed,
            batch_size=options.batch_size, classes=candidate.data.num_classes,
            tags=tags | {"network": candidate.network}, flags=candidate.flags, force=options.force,
            progress=progress, save_to=out, overwrite=options.overwrite,
        )  # fmt: skip
    return found, out


def default_out(candidate: Candidate, how: Smoothing, seed: int) -> Path:
    """Return the folder of a certification that was given none: one for each way of smoothing, data set and seed."""
    usual = Smoothing(how.sigma)
    words = [
        "certified", f"sigma{how.sigma:g}", f"n{how.n}", f"n0_{how.n0}" if how.n0 != usual.n0 else "",
        f"alpha{how.alpha:g}" if how.alpha != usual.alpha else "", candidate.suffix, f"seed{seed}" if seed else "",
    ]  # fmt: skip
    return candidate.home / "-".join(word for word in words if word)


def show(found: Sequence[Certification], radii: Sequence[float] | None) -> str:
    """Return one table of all certifications, certified accuracy at each radius."""
    rows = [row for one in found for row in one.rows]
    shown = round_radii(rows) if radii is None else radii
    lines = [(one.curve(shown), one.summary(), one.rows[0]["flags"]) for one in found]
    return certified_table(lines)


def draw(found: Sequence[Certification], path: Path) -> Path:
    """Write the curves of all certifications as a picture."""
    figure = certified_curves([row for one in found for row in one.curve()])
    try:
        return save_figure(figure, path)
    except OSError as error:
        raise EnvironmentProblem(f"--picture: cannot write {path}: {error.strerror or error}") from error
