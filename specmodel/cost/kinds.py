"""Which kinds of kernels a model runs, and the fits that its deployment takes for them."""

from functools import lru_cache

from specmodel.cost.deployment import Deployment
from specmodel.layers.batch import SINGLE_GPU
from specmodel.layers.group import Stored
from specmodel.layers.kinds import MAIN_KINDS
from specmodel.layers.run import Pass
from specmodel.machines.kernels import FITTED_DTYPE, KernelFit, Kernels
from specmodel.models.architecture import Architecture


def kernels_of(model: Architecture) -> dict[str, tuple[str, str]]:
    """Return the kernel kinds of a model, each with the stored and arithmetic dtype of one use."""
    of_norms: tuple[str, str] = (FITTED_DTYPE, model.activation_dtype)
    found = {"elementwise": of_norms}
    if model.residuals:
        found[model.residuals.kernel_kind] = of_norms
    for part in model.parts:
        for kind, stored, arithmetic in _kernels_of_part(part):
            found.setdefault(kind, (stored, arithmetic))
    return found


def places_taken(kernels: Kernels, model: Architecture) -> list[tuple[str, str]]:
    """Return the kind and dtype of each fit that a model uses; [] on the data sheet."""
    dtypes = [run for part in model.parts for run in _kernels_of_part(part)]
    if model.residuals and model.residuals.kernel_kind in MAIN_KINDS:
        dtypes.append((model.residuals.kernel_kind, FITTED_DTYPE, FITTED_DTYPE))
    places = [kernels.place(*run) for run in dtypes]
    return list(dict.fromkeys(place for place in places if place))


def fits_taken(deployment: Deployment, model: Architecture) -> dict[str, KernelFit]:
    """Return the fits a model uses, by `Kernels.kind_of_errors`; {} on the data sheet."""
    kernels, found = deployment.kernels, dict[str, KernelFit]()
    for kind, dtypes in kernels_of(model).items():
        fit = kernels.fit(kind, *dtypes)
        if fit and kind in MAIN_KINDS:
            found.setdefault(kernels.kind_of_errors(kind), fit)
    return found


@lru_cache(maxsize=1024)
def _kernels_of_part(part: Stored) -> tuple[tuple[str, str, str], ...]:
    works = part.work(Pass(part.stream, SINGLE_GPU), 1).values()
    return tuple((work.kind, work.stored_dtype, work.dtype) for work in works if work.kernels)
