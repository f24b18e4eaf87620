"""From rows to what people look at: the claim, its tables and its figures."""

from __future__ import annotations

from nfm.errors import DataError, EnvironmentProblem
from nfm.reproduce.claims import rows_of, write_claim
from nfm.reproduce.execution import Places, tell
from nfm.reproduce.figures import draw_figures
from nfm.reproduce.in_short import answers
from nfm.reproduce.kinds import show_table
from nfm.reproduce.pages import IMAGES
from nfm.reproduce.study import Study


def finish(study: Study, scale: str, places: Places) -> str:
    """Write the claim and the figures of a study; return its tables as text."""
    claim = write_claim(study, places.claims)
    made = claim["scales"].get(scale)
    if made is None:
        raise DataError(
            f"{study.id}, {scale} scale: expected rows in {places.claims / 'rows' / scale}, got none; make them: "
            f"nfm reproduce {study.id} --scale {scale}"
        )
    try:
        pictures = draw_figures(study, scale, rows_of(study, scale, places.claims), places.docs / IMAGES)
    except EnvironmentProblem as problem:  # numbers are good without pictures
        tell(f"no figures: {problem}")
        pictures = []
    lines = [show_table(table) + "\n" for table in made["tables"]]
    lines += (
        ["In short:\n", *(f"- {told}" for told in short), ""]
        if (short := list(answers(made["tables"])))
        else []
    )
    lines += [f"claim:   {places.claims / study.id}.json", *(f"figure:  {path}" for path in pictures)]
    return f"{study.title} ({scale} scale)\n\n" + "\n".join(lines)
