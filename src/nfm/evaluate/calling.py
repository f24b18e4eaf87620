"""`nfm.evaluate(model, data, ...)`: the package itself can be called."""

from __future__ import annotations

import warnings
from types import ModuleType
from typing import Any

from nfm.data.examples import DataSet, ExampleSet
from nfm.evaluate.bundles import fitting
from nfm.evaluate.checks import Classifier
from nfm.evaluate.protocols import EvaluationProtocol, choose_protocol
from nfm.evaluate.report import Report
from nfm.evaluate.suites import Suite
from nfm.evaluate.sweep import evaluate


class CallablePackage(ModuleType):
    """A package that is also its most important function."""

    def __call__(
        self,
        model: Classifier,
        data: DataSet | ExampleSet,
        suite: str | Suite = "quick",
        *,
        protocol: str | EvaluationProtocol = "pixel",
        **options: Any,
    ) -> Report:
        """Return a report of `model`, any callable from [0, 1] pixels to logits, on `data`.

        Of a data set the test part is measured, and a temperature is fitted on the validation part.
        What of a bundle cannot be measured on such data is left out, with a warning.
        `options` are those of `nfm.evaluate.sweep.evaluate`: seed, batch_size, force, save_to, ...
        """
        chosen = choose_protocol(protocol, model)
        if isinstance(data, DataSet):
            options = of_data(data) | options
            data = data.test
        cells, left_out = fitting(suite, chosen, data)
        if left_out:
            warnings.warn(f"left out of {suite!r}: {'; '.join(left_out)}", stacklevel=2)
        return evaluate(model, data, cells, protocol=chosen, **options)


def of_data(data: DataSet) -> dict[str, Any]:
    """Return what a whole data set tells an evaluation beside its test part."""
    held_out = data.validation if len(data.validation) else None
    return {"classes": data.num_classes, "held_out": held_out, "tags": {"data": data.name}}
