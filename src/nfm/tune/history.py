"""The trials of a study on disk, and what is proposed next: a pure function of the trials before and the seed.

Optuna's journal in the study's folder holds each finished trial as one line, so a kill leaves whole trials and nothing
else; the trial that was running is proposed again, the same, and its run goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nfm.errors import DataError, need
from nfm.randomness import SEEDS, fold
from nfm.results import Row, write_atomically
from nfm.tune.dominance import COMPLETE, FAILED, PRUNED
from nfm.tune.space import Choice, Range, Settings, Space

JOURNAL = "optuna.log"
NAME, REFERENCE, ROW = "nfm", "reference", "row"
DIRECTIONS = ("maximize", "maximize")  # clean, robust
AT_RANDOM = 8  # trials before the sampler models what it has seen: a third of a study of 24


class History:
    """The finished trials of a study, in Optuna's own journal."""

    def __init__(self, folder: Path, space: Space, *, seed: int) -> None:
        self.optuna, self.space, self.seed = import_optuna(), space, seed
        self._study = self._open(folder / JOURNAL)

    def _open(self, file: Path) -> Any:
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend

        _mend(file)
        # The study's own lock holds: Optuna's would outlive a killed process.
        backend = JournalFileBackend(str(file), lock_obj=_NoLock())  # type: ignore[arg-type]
        try:
            with quiet():
                return self.optuna.create_study(
                    storage=JournalStorage(backend),
                    study_name=NAME,
                    load_if_exists=True,
                    directions=DIRECTIONS,
                )
        except (ValueError, KeyError, TypeError, AssertionError) as error:
            raise DataError(
                f"{file}: expected the journal of a study, got {error!r}; start anew with --overwrite"
            ) from error

    @property
    def rows(self) -> list[Row]:
        """The rows of the trials, in order."""
        return [trial.user_attrs[ROW] for trial in self._study.get_trials()]

    @property
    def reference(self) -> Row | None:
        """The row of the network that the trials are compared with."""
        return self._study.user_attrs.get(REFERENCE)

    def set_reference(self, row: Row) -> None:
        """Keep the row of the reference."""
        self._study.set_user_attr(REFERENCE, row)

    def add(self, row: Row) -> None:
        """Keep a finished trial."""
        states = self.optuna.trial.TrialState
        state = {COMPLETE: states.COMPLETE, PRUNED: states.PRUNED, FAILED: states.FAIL}[row["state"]]
        values = [row["clean"], row["robust"]] if row["state"] == COMPLETE else None
        self._study.add_trial(
            self.optuna.trial.create_trial(
                state=state, params=row["settings"], distributions=self._distributions(), values=values,
                user_attrs={ROW: row},
            )
        )  # fmt: skip

    def propose(self) -> Settings:
        """Return the settings of the next trial: the recipe's own first, then the sampler's.

        A new sampler each time, keyed by the trial: it has no memory but the trials.
        """
        trials = self._study.get_trials()
        if not trials:
            return dict(self.space.start)
        sampler = self.optuna.samplers.TPESampler(
            seed=fold(self.seed, "sampler", len(trials)) % SEEDS, multivariate=True, constant_liar=False,
            n_startup_trials=AT_RANDOM,
        )  # fmt: skip
        with quiet():
            copy = self.optuna.create_study(directions=DIRECTIONS, sampler=sampler)
            copy.add_trials(trials)
            return self.space.tidy(copy.ask(self._distributions()).params)

    def _distributions(self) -> dict[str, Any]:
        return {name: self._distribution(one) for name, one in self.space.ranges.items()}

    def _distribution(self, one: Range | Choice) -> Any:
        kinds = self.optuna.distributions
        if isinstance(one, Choice):
            return kinds.CategoricalDistribution(one.names)
        return kinds.FloatDistribution(one.low, one.high, log=one.log)


def import_optuna() -> Any:
    """Return Optuna, or say how to install it."""
    try:
        import optuna
    except (ImportError, RuntimeError) as error:
        raise need("optuna", "tune", "nfm tune", error) from error
    return optuna


@contextmanager
def quiet() -> Iterator[None]:
    """Keep Optuna from telling of every study it makes; its level comes back."""
    logger = logging.getLogger("optuna")
    before = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(before)


class _NoLock:
    def acquire(self) -> bool:
        return True

    def release(self) -> None: ...


def _mend(file: Path) -> None:
    """Drop the half of a last line that a killed process left: Optuna would choke on what comes after it."""
    if file.exists() and not (content := file.read_bytes()).endswith(b"\n"):
        write_atomically(file, content[: content.rfind(b"\n") + 1])
