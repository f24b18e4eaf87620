"""The errors a user can meet. Each says what was expected, what came, and what to do."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class NFMError(Exception):
    """The root of every error raised on purpose by this package."""

    exit_code = 1


class UsageError(NFMError, ValueError):
    """A value, name or option that cannot be used."""

    exit_code = 2


class ConfigError(UsageError):
    """A recipe or an option list with one or more errors, all of them told at once."""


class ShapeError(UsageError):
    """A tensor whose shape, dtype or batch does not fit."""


class SiteError(UsageError):
    """A site that is missing, fires more or less than once, or does not carry the batch."""


class AttachError(NFMError, RuntimeError):
    """A network that cannot be attached to, or a draw that met no forward pass."""

    exit_code = 2


class DataError(NFMError, ValueError):
    """Data or a file with bad content."""

    exit_code = 3


class CheckpointError(DataError):
    """A checkpoint that is torn, foreign, or does not fit."""


class NumericalError(NFMError, ArithmeticError):
    """NaN or infinity where a number was needed."""

    exit_code = 4


class EnvironmentProblem(NFMError, RuntimeError):
    """A missing package, device, permission or disk space."""

    exit_code = 5


class Stopped(NFMError):
    """A run that was asked to stop by a signal, and saved its state first."""

    def __init__(self, message: str, signal_number: int) -> None:
        super().__init__(message)
        self.exit_code = 128 + signal_number  # as a shell reports it: 143 for SIGTERM, 130 for SIGINT


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `` (did you mean 'x'?)`` for the nearest known name, or nothing.

    >>> did_you_mean("stage5", ["input", "stage1", "stage4"])
    " (did you mean 'stage4'?)"
    >>> did_you_mean("zebra", ["input"])
    ''
    """
    nearest = get_close_matches(name, sorted(known, reverse=True), n=1)
    return f" (did you mean {nearest[0]!r}?)" if nearest else ""


def need(package: str, extra: str, purpose: str, error: Exception) -> EnvironmentProblem:
    """Return the error for an optional package that does not import."""
    return EnvironmentProblem(
        f"{purpose} needs {package}, which does not import ({type(error).__name__}: {error}); "
        f'install it: pip install "noisy-feature-mixup[{extra}]"'
    )
