"""The paper's theory, measured on real networks: each result a file, the printed form beside the right one."""

from nfm.theory.adversarial_bound import AdversarialBound, adversarial_bound, mixing_radius
from nfm.theory.assumptions import Assumption
from nfm.theory.curvature_terms import CurvatureTerms, curvature_terms
from nfm.theory.derivatives import SiteMap, site_map
from nfm.theory.expansion import Expansion, Regularisers, expansion
from nfm.theory.generalization import (
    GeneralizationBounds,
    finite_class_complexity,
    generalization_bounds,
    linear_class_complexity,
    massart_bound,
    mcdiarmid,
    norm_class_complexity,
)
from nfm.theory.gradient_terms import GradientTerms, gradient_terms
from nfm.theory.jacobian_norms import feature_norms, output_norms
from nfm.theory.lipschitz import LipschitzBounds, lipschitz
from nfm.theory.margin import Margins, margins, score
from nfm.theory.meter import Meter, Yardstick, measure
from nfm.theory.mixture import WeightMixture
from nfm.theory.moments import Estimate
from nfm.theory.monte_carlo import auxiliary_loss, sampled_loss, training_loss
from nfm.theory.nearest_error import nearest_error
from nfm.theory.probabilistic import ClassCounts, Lead, certified_shift, find_lead, sample_classes
from nfm.theory.site_certificate import SiteCertificate, certify_site
from nfm.theory.soundness import check_sound
from nfm.theory.taylor import taylor
from nfm.theory.total_variation import SiteNoise, noisy_pair, total_variation_bound
from nfm.theory.total_variation_ball import total_variation_within
from nfm.theory.vicinal import Perturbation, label_perturbation, perturbation, vicinal

__all__ = [
    "AdversarialBound",
    "Assumption",
    "ClassCounts",
    "CurvatureTerms",
    "Estimate",
    "Expansion",
    "GeneralizationBounds",
    "GradientTerms",
    "Lead",
    "LipschitzBounds",
    "Margins",
    "Meter",
    "Perturbation",
    "Regularisers",
    "SiteCertificate",
    "SiteMap",
    "SiteNoise",
    "WeightMixture",
    "Yardstick",
    "adversarial_bound",
    "auxiliary_loss",
    "certified_shift",
    "certify_site",
    "check_sound",
    "curvature_terms",
    "expansion",
    "feature_norms",
    "find_lead",
    "finite_class_complexity",
    "generalization_bounds",
    "gradient_terms",
    "label_perturbation",
    "linear_class_complexity",
    "lipschitz",
    "margins",
    "massart_bound",
    "mcdiarmid",
    "measure",
    "mixing_radius",
    "nearest_error",
    "noisy_pair",
    "norm_class_complexity",
    "output_norms",
    "perturbation",
    "sample_classes",
    "sampled_loss",
    "score",
    "site_map",
    "taylor",
    "total_variation_bound",
    "total_variation_within",
    "training_loss",
    "vicinal",
]
