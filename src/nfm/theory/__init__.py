"""The paper's theory, measured on real networks: each result a file, the printed form beside the right one."""

from nfm.theory.adversarial_bound import AdversarialBound, adversarial_bound
from nfm.theory.assumptions import Assumption
from nfm.theory.curvature_terms import CurvatureTerms, curvature_terms
from nfm.theory.derivatives import SiteMap, site_map
from nfm.theory.expansion import Expansion, Regularisers, expansion
from nfm.theory.gradient_terms import GradientTerms, gradient_terms
from nfm.theory.mixture import WeightMixture
from nfm.theory.moments import Estimate
from nfm.theory.monte_carlo import auxiliary_loss, sampled_loss, training_loss
from nfm.theory.soundness import check_sound
from nfm.theory.taylor import taylor
from nfm.theory.vicinal import Perturbation, label_perturbation, perturbation, vicinal

__all__ = [
    "AdversarialBound",
    "Assumption",
    "CurvatureTerms",
    "Estimate",
    "Expansion",
    "GradientTerms",
    "Perturbation",
    "Regularisers",
    "SiteMap",
    "WeightMixture",
    "adversarial_bound",
    "auxiliary_loss",
    "check_sound",
    "curvature_terms",
    "expansion",
    "gradient_terms",
    "label_perturbation",
    "perturbation",
    "sampled_loss",
    "site_map",
    "taylor",
    "training_loss",
    "vicinal",
]
