"""Find the policies of this package that learn, in the modules of this folder."""

from importlib import import_module
from pkgutil import iter_modules

from specmodel.simulate import policies
from specmodel.simulate.policies.policy import LearningPolicy

KNOWN: dict[str, type[LearningPolicy]] = {
    kind.name: kind
    for module in iter_modules(policies.__path__)
    if module.name != "known"
    for kind in vars(import_module(f"{policies.__name__}.{module.name}")).values()
    if isinstance(kind, type) and issubclass(kind, LearningPolicy) and "name" in vars(kind)
}
"""Classes of the policies, by name."""
