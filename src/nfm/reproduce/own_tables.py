"""Tables of the measures that only studies have."""

from __future__ import annotations

from collections.abc import Sequence

from nfm.reproduce.layout import TABLES, grid, show_number
from nfm.results import Row


@TABLES.register("toy")
def toy_table(table: Row) -> str:
    """Return the toy task: published single accuracies, ours over seeds, excess risk, a test, the best of settings."""
    body = [_toy_line(line) for line in table["lines"]]
    head = [
        "scheme", "paper (1 seed, 200 points)", "ours", "median", "collapsed", "excess risk", "p against the baseline",
        "best of k settings", "its excess risk", "setting",
    ]  # fmt: skip
    first = f"Accuracy in % on {table['n']:,} fresh points; Bayes-optimal: {100 * table['bayes']:.2f}."
    return "\n".join([first, "", grid(head, body), "", near_bayes(table), *_further(table["lines"])])


def near_bayes(table: Row) -> str:
    """Tell which schemes of the toy task come near the best that is possible."""
    near = [line["label"] for line in table["lines"] if line["near_bayes"]]
    return f"Within 0.5 points of Bayes after the choice by validation: {', '.join(near) or 'none'}."


def _further(lines: Sequence[Row]) -> list[str]:
    """Tell what each line that adds something to another has over it."""
    return [
        f"{line['label']} – {more['against']}: {_show_ahead(more['plain'])}; "
        f"each at the best of its settings: {_show_ahead(more['tuned'])}."
        for line in lines
        if (more := line["further"])
    ]


def _show_ahead(told: Row) -> str:
    return f"{100 * told['difference']:+.2f} points (p = {_show_p(told['p_value'])})"


def _show_p(p_value: float | None) -> str:
    return "–" if p_value is None else f"{p_value:.2g}"


def _toy_line(line: Row) -> list[str]:
    paper = f"{line['published'][0]:.1f}" if line["published"] else "–"
    return [
        line["label"], paper, show_number(line["accuracy"]), f"{100 * line['median']:.1f}",
        f"{line['collapsed']} of {line['accuracy']['seeds']}", f"{100 * line['excess']:.2f}", _show_p(line["p_value"]),
        f"{show_number(line['tuned'])} (k={line['settings']})", f"{100 * line['tuned_excess']:.2f}", line["chosen"],
    ]  # fmt: skip


@TABLES.register("taylor")
def taylor_table(table: Row) -> str:
    """Return the losses at the end of training, and how far the approximation is from the loss on the way."""
    names = ("standard", "nfm_loss", "approximation")
    head = ["noise", "part", "standard loss", "NFM loss", "approximation", "mean gap (%)", "largest gap (%)"]
    body = [
        [line["label"], part, *(f"{line[part][name]:.4f}" for name in names),
         f"{100 * line[part]['mean_gap']:.1f}", f"{100 * line[part]['largest_gap']:.1f}"]
        for line in table["lines"]
        for part in ("train", "test")
    ]  # fmt: skip
    return "\n".join(
        ["Losses after the last epoch; gaps relative to the NFM loss, over all epochs.", "", grid(head, body)]
    )


@TABLES.register("features")
def features_table(table: Row) -> str:
    """Return how much the chosen activations grew."""
    head = ["scheme", "units", "activation before", "after", "l2 norm of the change (0-255)"]
    body = [
        [
            line["label"],
            str(line["units"]),
            f"{line['before']:.2f}",
            f"{line['after']:.2f}",
            f"{line['norm_255']:.0f}",
        ]
        for line in table["lines"]
    ]
    return "\n".join(["Pre-logit activations, mean over the chosen units.", "", grid(head, body)])


@TABLES.register("training")
def training_table(table: Row) -> str:
    """Return the errors after the last epoch."""
    head = ["scheme", "epochs", "train error (%)", "test error (%)"]
    body = [
        [
            line["label"],
            str(line["epochs"]),
            f"{100 * line['train_error']:.1f}",
            f"{100 * line['test_error']:.1f}",
        ]
        for line in table["lines"]
    ]
    return "\n".join(["Errors after the last epoch, mean over seeds.", "", grid(head, body)])
