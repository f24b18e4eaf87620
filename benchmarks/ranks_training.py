"""``python -m benchmarks.ranks_training THREADS``, also under torchrun: train a little, print the seconds it took."""

from __future__ import annotations

import sys
import time

import torch

from benchmarks.networks import BATCH, preact_resnet18, random_data
from nfm.method.presets import preset
from nfm.train.fit import fit
from nfm.train.progress import Silent
from nfm.train.ranks import joined

torch.set_num_threads(int(sys.argv[1]))
data = random_data(BATCH * 4)
with joined() as ranks:
    began = time.perf_counter()
    fit(
        preact_resnet18(0.25), preset("nfm"), data, epochs=2, batch_size=BATCH, progress=Silent(), ranks=ranks
    )
    if ranks.first:
        print(time.perf_counter() - began)
