"""The studies with their time and how much of each is done."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from nfm.reproduce.jobs import jobs_of
from nfm.reproduce.reading import find_study, study_names
from nfm.reproduce.records import Record
from nfm.reproduce.study import SCALES, Study

HEAD = ("id", "scale", "done", "time", "what")


def status_lines(claims: Path) -> list[Sequence[str]]:
    """Return one line a study and scale: runs done and in all, the time it takes, where it is in the paper."""
    studies = [find_study(name) for name in study_names()]
    return [HEAD, *(_line(study, scale, claims) for study in studies for scale in SCALES)]


def _line(study: Study, scale: str, claims: Path) -> Sequence[str]:
    jobs = jobs_of(study, scale)
    done = sum(not Record.of(claims, job).missing(job.measures) for job in jobs)
    return study.id, scale, f"{done}/{len(jobs)}", study.scales[scale].time or "-", study.source
