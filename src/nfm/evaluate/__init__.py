"""Honest measurement of any classifier: perturb, predict, count, write rows.

The package can be called: ``nfm.evaluate(model, data, "quick")``.
"""

import sys

from nfm.evaluate.apgd import APGD
from nfm.evaluate.attack import Attack, parse_eps
from nfm.evaluate.attacks import ATTACKS, Strong, attack_suite
from nfm.evaluate.bundles import fitting
from nfm.evaluate.calling import CallablePackage
from nfm.evaluate.certificates import Certification, certified_accuracy
from nfm.evaluate.certify import Smoothing, certify, predict_smoothed
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
from nfm.evaluate.pgd import FGSM, PGD, PGD7
from nfm.evaluate.protocols import Authors, Normalisation, Pixel
from nfm.evaluate.report import Report, load_report
from nfm.evaluate.square import Square
from nfm.evaluate.suites import SUITES, Cell, cells, noise_suite
from nfm.evaluate.sweep import evaluate

__all__ = [
    "APGD",
    "ATTACKS",
    "FGSM",
    "PERTURBATIONS",
    "PGD",
    "PGD7",
    "SUITES",
    "Attack",
    "Authors",
    "Blur",
    "Cell",
    "Certification",
    "Clean",
    "Normalisation",
    "Occlusion",
    "Perturbation",
    "Pixel",
    "Report",
    "SaltAndPepper",
    "Shot",
    "Smoothing",
    "Speckle",
    "Square",
    "Strong",
    "UniformNoise",
    "WhiteNoise",
    "attack_suite",
    "cells",
    "certified_accuracy",
    "certify",
    "evaluate",
    "fitting",
    "load_report",
    "mcnemar",
    "noise_suite",
    "over_seeds",
    "parse_eps",
    "predict_smoothed",
    "wilson_interval",
]

sys.modules[__name__].__class__ = CallablePackage
