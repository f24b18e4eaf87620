"""What noise certifies of a trained network: by smoothing its input, and by the theorem of the paper's supplement."""

from statistics import fmean

import nfm
from nfm.data import load
from nfm.evaluate import Smoothing, certify
from nfm.models import build
from nfm.theory.lipschitz import lipschitz
from nfm.theory.probabilistic import attack_factor, attack_factor_printed, printed_epsilon
from nfm.theory.site_certificate import certify_site
from nfm.theory.total_variation import SiteNoise
from nfm.train.optim import Optimizer

data = load("digits")
model = build(
    "mlp", num_classes=10, in_channels=1, image_size=8, mean=data.mean, std=data.std, units=64, seed=0
)
nfm.fit(model, nfm.preset("nfm"), data, epochs=20, optimizer=Optimizer(lr=0.1))
model.eval()

# The smoothed network, in pixels of [0, 1]; sigma is NFM's additive level .4 at the normalised input.
sigma, draws, limit = 0.4 * data.std[0], 1000, 20
found = certify(model, data.test, Smoothing(sigma, n=draws), limit=limit)
print(f"smoothing, sigma {sigma:.3f}: {found.summary()}")

# The same examples under the total variation certificate (SM E), at the input and behind the first layer.
places = {int(name): place for place, name in enumerate(data.test.ids)}
chosen = data.test.ids.new_tensor([places[row["id"]] for row in found.rows])
x = data.test.fetch(chosen).float() / 255
inside = model.default_sites[1]
before = {"input": None, inside: lipschitz(model, x, site=inside).before}  # at the input it is known
for site, constant in before.items():
    for noise in (SiteNoise(0.4), SiteNoise(0.4, 0.2)):
        told = certify_site(
            model, x, site=site, noise=noise, n=draws, lipschitz=constant, ids=chosen.tolist()
        )
        shift = fmean(one.shift for one in told)
        radius = fmean(one.radius for one in told)
        share = sum(one.certified for one in told) / limit
        print(f"{site}, {noise}: certified {share:.0%}, mean shift {shift:.3f}, in pixels {radius:.3f}")

print(
    "eps_k as printed, additive noise alone:",
    printed_epsilon(1, 2, 64, SiteNoise(0.4), jacobian=1, norm=8, spread=0),
)
print("A_p for |tau|_inf <= 2, d = 256: printed", attack_factor_printed(2, float("inf"), 256), end=", ")
print("right", attack_factor(2, float("inf"), 256))
