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
NORMS = {"linf": "l∞"}  # l2 reads well as it is


def name_of(label: str) -> str:
    """Return the name of a perturbation from its label.

    >>> name_of("pgd7(norm=l2)"), name_of("pgd(steps=50)"), name_of("motion_blur")
    ('PGD-7 l2', 'PGD l∞ (steps=50)', 'motion blur')
    """
    if label in NAMES:
        return NAMES[label]
    name, _, options = label.partition("(")
    chosen = [option for option in options.rstrip(")").split(",") if option]
    norm = next((option.removeprefix("norm=") for option in chosen if option.startswith("norm=")), "linf")
    rest = [option for option in chosen if not option.startswith("norm=")]
    told = f"{ATTACKS[name]} {NORMS.get(norm, norm)}" if name in ATTACKS else name.replace("_", " ")
    return f"{told} ({', '.join(rest)})" if rest else told


def is_attack(label: str) -> bool:
    """Tell whether the level of a perturbation is an ε."""
    return label.partition("(")[0] in ATTACKS


def axis_of(label: str) -> str:
    """Return what an axis of levels measures; an ε is always in pixels, whatever the protocol.

    >>> axis_of("pgd7"), axis_of("motion_blur")
    ('ε of PGD-7 l∞, in pixels of [0, 1]', 'motion blur')
    """
    return f"ε of {name_of(label)}, in pixels of [0, 1]" if is_attack(label) else name_of(label)
