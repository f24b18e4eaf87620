"""What the README shows of the results: one table and two figures, from the claims."""

from __future__ import annotations

from pathlib import Path

from nfm.reproduce.layout import own_accuracies
from nfm.results import Row, write_between

BEGIN, END = "<!-- results: nfm reproduce --write-docs -->", "<!-- end of results -->"
STUDY, SUITE, SCALE = "cifar10-resnet18", "cifar/authors", "small"
FIGURES = {
    f"{STUDY}-{SCALE}-curves-cifar10-authors.png": "Accuracy under white noise and salt and pepper",
    f"toy-boundaries-{SCALE}-boundaries.png": "Decision boundaries of ten schemes, and the Bayes-optimal one",
}


def write_front(found: dict[str, Row], images: Path, readme: Path) -> None:
    """Write the results between their marks in `readme`, where there are such marks and such results."""
    made = found.get(STUDY, {}).get("scales", {}).get(SCALE, {"tables": []})
    table = next((table for table in made["tables"] if table.get("measure", "").startswith(SUITE)), None)
    if table is None or not readme.is_file() or BEGIN not in readme.read_text(encoding="utf-8"):
        return
    told = (
        f"`nfm reproduce {STUDY} --scale {SCALE}`: accuracy in % on {table['n']:,} test images, protocol "
        f"`{table['protocol']}`, n training seeds (mean ± standard deviation; one seed: 95% interval of the images). "
        f"{' '.join(note for note in found[STUDY]['notes'] if note.startswith('Small scale'))} "
        "In bold: the highest of a column, where it is of three seeds or more. What all of it says, in words: "
        f"[Results]({images.parents[1].relative_to(readme.parent) / 'results.md'})."
    )
    shown = [
        f"![{caption}]({(images / name).relative_to(readme.parent)})"
        for name, caption in FIGURES.items()
        if (images / name).is_file()
    ]
    write_between(readme, BEGIN, END, "\n\n".join([told, own_accuracies(table), *shown]))
