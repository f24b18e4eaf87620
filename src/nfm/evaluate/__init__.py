"""Honest measurement of any classifier: perturb, predict, count, write rows."""

from nfm.evaluate.metrics import mcnemar, over_seeds, wilson_interval
from nfm.evaluate.noise import (
    PERTURBATIONS,
    Blur,
    Clean,
    Occlusion,
    SaltAndPepper,
    Shot,
    Speckle,
    UniformNoise,
    WhiteNoise,
)
from nfm.evaluate.perturbation import Perturbation
from nfm.evaluate.protocols import Authors, Normalisation, Pixel
from nfm.evaluate.report import Report, load_report
from nfm.evaluate.suites import SUITES, Cell, cells, noise_suite
from nfm.evaluate.sweep import evaluate

__all__ = [
    "PERTURBATIONS",
    "SUITES",
    "Authors",
    "Blur",
    "Cell",
    "Clean",
    "Normalisation",
    "Occlusion",
    "Perturbation",
    "Pixel",
    "Report",
    "SaltAndPepper",
    "Shot",
    "Speckle",
    "UniformNoise",
    "WhiteNoise",
    "cells",
    "evaluate",
    "load_report",
    "mcnemar",
    "noise_suite",
    "over_seeds",
    "wilson_interval",
]
