"""Perturbations as people say them."""

from __future__ import annotations

NAMES = {"white_noise": "white noise  σ", "salt_and_pepper": "salt and pepper  γ"}  # the paper's letters
ATTACKS = {
    "fgsm": "FGSM",
    "pgd": "PGD",
    "pgd7": "PGD-7",
    "apgd": "Auto-PGD",
    "square": "Square",
    "strong": "strong attacks",
}


def name_of(label: str) -> str:
    """Return the name of a perturbation from its label.

    >>> name_of("pgd7(norm=l2)"), name_of("pgd(steps=50)"), name_of("motion_blur")
    ('PGD-7, l2', 'PGD, linf (steps=50)', 'motion blur')
    """
    if label in NAMES:
        return NAMES[label]
    name, _, options = label.partition("(")
    chosen = [option for option in options.rstrip(")").split(",") if option]
    norm = next((option.removeprefix("norm=") for option in chosen if option.startswith("norm=")), "linf")
    rest = [option for option in chosen if not option.startswith("norm=")]
    told = f"{ATTACKS[name]}, {norm}" if name in ATTACKS else name.replace("_", " ")
    return f"{told} ({', '.join(rest)})" if rest else told
