"""``nfm reproduce ID --scale small|full``: a table or figure of the paper, with the published numbers beside ours."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from nfm.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nfm.reproduce.execution import Places
    from nfm.reproduce.study import Study

EPILOG = """Rows go to CLAIMS/rows, one small file a run; tables, figures and CLAIMS/ID.json are made of them alone.
A run whose rows are there is not done again, even where its folder is gone; one that was stopped goes on: give
the same command. All arms of the first seed are done first, then those of the next."""


def add_arguments(options: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    options.epilog = EPILOG
    options.add_argument("id", nargs="?", metavar="ID", help="a table or figure (--list), or all")
    options.add_argument("--list", action="store_true", help="show the IDs with their time and status")
    options.add_argument(
        "--scale", default="small", help="small (2 CPU cores) or full (the paper's own, for GPUs)"
    )
    options.add_argument(
        "--seeds", type=int, nargs="+", help="train these seeds alone; the study's own or more, all count"
    )
    options.add_argument(
        "--arms", nargs="+", metavar="ARM", help="these arms alone, by their names in the recipe"
    )
    options.add_argument(
        "--dry-run", action="store_true", help="build all, check shapes, print commands, stop"
    )
    options.add_argument(
        "--from-rows", action="store_true", help="train nothing: tables and figures of the rows"
    )
    options.add_argument(
        "--write-docs",
        action="store_true",
        help="write the page of results (and the README's) from CLAIMS, and stop",
    )
    options.add_argument("--claims", type=Path, default=Path("claims"), help="where rows and claims are kept")
    options.add_argument(
        "--runs", type=Path, default=Path("runs/reproduce"), help="where checkpoints are kept"
    )
    options.add_argument("--docs", type=Path, default=Path("docs"), help="where page and figures go")
    options.add_argument("--data-root", default="", help="folder to look for the data in first")
    options.add_argument("--download", action="store_true", help="download the data if it is not there")
    options.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")


def run(given: argparse.Namespace) -> None:
    """Do what was asked for."""
    from nfm.reproduce.execution import Places
    from nfm.reproduce.reading import find_study, study_names, study_to_do

    _check_together(given)
    places = Places(given.claims, given.runs, given.docs, given.data_root, given.download, given.device)
    if given.list:
        return _list(places)
    if given.write_docs:
        return _write_docs(places)
    if given.id is None:
        raise UsageError("expected an ID, or `all`; `nfm reproduce --list` shows them")
    if given.id != "all":
        return _reproduce(study_to_do(given.id), given, places)
    if given.arms:
        raise UsageError("--arms: expected one ID with it, got all")
    return _all([find_study(name) for name in study_names()], given, places)


ALONE = {
    "list": ("id", "write_docs", "from_rows", "dry_run", "seeds", "arms"),
    "write_docs": ("id", "from_rows", "dry_run", "seeds", "arms"),
    "from_rows": ("dry_run", "seeds", "arms"),
}  # flags, and those that would mean nothing beside them


def _check_together(given: argparse.Namespace) -> None:
    """Refuse flags of which one would be passed over in silence."""
    for flag, others in ALONE.items():
        beside = [name for name in others if getattr(given, name)] if getattr(given, flag) else []
        if beside:
            told = given.id if beside[0] == "id" else _flag(beside[0])
            raise UsageError(f"{_flag(flag)}: expected without {told}; leave one of them out")


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _all(studies: Sequence[Study], given: argparse.Namespace, places: Places) -> None:
    """Reproduce one study after the other; what stops one does not stop the next, and is told at the end."""
    import sys

    from nfm.errors import DataError, NumericalError

    stopped = []
    for study in studies:
        try:
            _reproduce(study, given, places)
        except (DataError, NumericalError) as error:
            print(f"{study.id}: {error}", file=sys.stderr, flush=True)
            stopped.append(study.id)
    if stopped:
        raise DataError(f"not finished: {', '.join(stopped)}; the reason of each is told above")


def _list(places: Places) -> None:
    from nfm.cli.list_verb import columns
    from nfm.reproduce.status import status_lines

    print(columns(status_lines(places.claims)))


def _write_docs(places: Places) -> None:
    from nfm.reproduce.execution import check_writable
    from nfm.reproduce.pages import write_page

    check_writable(places, training=False)
    print(f"page: {write_page(places.claims, places.docs)}")


def _reproduce(study: Study, given: argparse.Namespace, places: Places) -> None:
    from nfm.reproduce.execution import check_writable, do_jobs
    from nfm.reproduce.finish import finish
    from nfm.reproduce.jobs import jobs_of

    _check_scale(study, given.scale)
    jobs = jobs_of(study, given.scale, seeds=given.seeds, arms=given.arms)
    if not jobs and given.id != "all":
        told = " ".join(map(str, given.seeds or ()))
        raise UsageError(
            f"--seeds: no arm of {study.id} is to have {told or 'any seed'}; one that --arms names is trained with it"
        )
    if given.dry_run:
        from nfm.reproduce.rehearsal import rehearse

        return print(rehearse(study, given.scale, jobs, places, command=_command(study, given, places)))
    check_writable(places, training=not given.from_rows)
    if not given.from_rows and not do_jobs(jobs, places):
        return None
    return print(finish(study, given.scale, places))


def _check_scale(study: Study, scale: str) -> None:
    from nfm.reproduce.study import SCALES

    if not any(line.seeds for line in study.lines(scale)):
        has = [name for name in SCALES if any(line.seeds for line in study.lines(name))]
        raise UsageError(f"--scale: {study.id} has no {scale} scale; it has: {', '.join(has) or 'none'}")


def _command(study: Study, given: argparse.Namespace, places: Places) -> str:
    """Return the command that was given, but for its seeds; what is the default is left out."""
    import shlex
    from dataclasses import asdict

    words = ["reproduce", study.id if given.id == "all" else given.id, "--scale", given.scale]
    words += ["--arms", *given.arms] if given.arms else []
    usual = asdict(type(places)())
    for name, value in asdict(places).items():
        if value != usual[name]:
            words += [_flag(name), *([] if value is True else [str(value)])]
    return shlex.join(words)
