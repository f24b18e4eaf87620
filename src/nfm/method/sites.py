"""Sites: the places of a network where a batch can be mixed, by the dotted names of its own modules."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Any

from torch import Tensor, nn

from nfm.core.structure import Path, parts, replace
from nfm.errors import SiteError, did_you_mean

INPUT = "input"


@dataclasses.dataclass(frozen=True)
class Site:
    """A place to mix: `name` as the user says it, and the module behind it ('' is the network's own input).

    `part` names the tensor to mix where the module returns a tuple, mapping or dataclass; `inputs` names the
    arguments to mix at the network's own input. None means the only one there is.
    """

    name: str
    module: str
    part: Path | None = None
    inputs: tuple[str, ...] | None = None


def default_sites(model: nn.Module) -> tuple[str, ...]:
    """Return the sites a network declares (`default_sites`), or the block boundaries found in it."""
    from nfm.method.boundaries import find_sites

    declared = getattr(model, "default_sites", None)
    return tuple(declared) if declared else tuple(find_sites(model))


def resolve(
    model: nn.Module, sites: Sequence[str] | None, inputs: tuple[str, ...] | None = None
) -> dict[str, Site]:
    """Return the sites of `model` meant by names and globs, in order; refuse what is not there."""
    wanted = default_sites(model) if sites is None else sites
    if not wanted:
        raise SiteError(
            f"expected at least one site in {type(model).__name__}, got none; "
            f"it has: {', '.join(site_names(model)[:12])}"
        )
    found = [site for pattern in wanted for site in _matching(model, pattern, inputs)]
    return {site.name: site for site in found}


def site_names(model: nn.Module) -> list[str]:
    """Return every name that can be a site."""
    return [INPUT, *(name for name, _ in model.named_modules() if name)]


def _matching(model: nn.Module, pattern: str, inputs: tuple[str, ...] | None) -> Iterable[Site]:
    name, _, part = pattern.partition(":")
    if name == INPUT:
        # A network that normalises inside may say where its own input begins (`input_site`).
        begins = getattr(model, "input_site", "")
        return [Site(pattern, begins, inputs=inputs if not part else (part,))]
    names = site_names(model)
    matches = [known for known in names[1:] if _fits(known, name)]
    if not matches:
        shown = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
        raise SiteError(
            f"no site {name!r} in {type(model).__name__}; it has: {shown}{did_you_mean(name, names)}"
        )
    suffix = f":{part}" if part else ""
    return [Site(known + suffix, known, _path(part)) for known in matches]


def _fits(name: str, pattern: str) -> bool:
    """Tell whether a glob fits; ``*`` stays within one level of the dotted name."""
    levels, wanted = name.split("."), pattern.split(".")
    return len(levels) == len(wanted) and all(map(fnmatchcase, levels, wanted))


def _path(part: str) -> Path | None:
    return int(part) if part.isdigit() else part or None


def is_feature(value: Any) -> bool:
    """Tell whether `value` is a tensor that could be mixed."""
    return isinstance(value, Tensor) and value.is_floating_point() and value.ndim > 0


def pick(value: Any, site: Site) -> Tensor:
    """Return the one tensor to mix of what a site's module returns."""
    if isinstance(value, Tensor) and site.part is None:
        return value
    elements = dict(parts(value))
    if site.part is not None:
        if site.part not in elements:
            raise SiteError(
                f"no part {site.part!r} at site {site.module!r}; "
                f"its output ({type(value).__name__}) has: {', '.join(map(str, elements)) or 'no parts'}"
            )
        return elements[site.part]
    features = [path for path, element in elements.items() if is_feature(element)]
    if len(features) != 1:
        choices = ", ".join(f"{site.name}:{path}" for path in features) or "none"
        raise SiteError(
            f"expected one tensor from site {site.name!r}, got {type(value).__name__} with {len(features)} "
            f"floating-point tensors; name the part to mix: {choices}"
        )
    return elements[features[0]]


def put(value: Any, site: Site, mixed: Tensor) -> Any:
    """Return what the site's module returned, with its one tensor replaced by `mixed`."""
    if isinstance(value, Tensor):
        return mixed
    old = pick(value, site)
    path = next(path for path, element in parts(value) if element is old)
    return replace(value, {path: mixed})
