"""Predict target efficiency and speedup of speculative decoding on Mixture-of-Experts models.

Names load on first use, so that importing the package costs nothing. See `predict`.
"""

from importlib.machinery import PathFinder
from typing import TYPE_CHECKING

from specmodel.core.base.fronts import SHOWN, front, late

if TYPE_CHECKING:
    from specmodel import (
        plan as answers,  # noqa: F401 - its name before
        plan as plan,
        show as show,
        simulate as replay,  # noqa: F401 - its name before
        simulate as serving,  # noqa: F401 - its name before
        simulate as simulate,
    )
    from specmodel.calibrate import fit as fit, measure as measure
    from specmodel.core import cost as cost
    from specmodel.core.algebra import (
        experts as experts,
        moesd as moesd,
        speculation as speculation,
    )
    from specmodel.core.algebra.acceptance import Acceptance as Acceptance
    from specmodel.core.base.errors import InputError as InputError
    from specmodel.core.cost.deploying import deploy as deploy
    from specmodel.core.cost.deployment import Deployment as Deployment
    from specmodel.core.drafters.acceptance import (
        list_acceptance as list_acceptance,
        load_acceptance as load_acceptance,
    )
    from specmodel.core.drafters.by_name import (
        list_drafters as list_drafters,
        load_drafter as load_drafter,
    )
    from specmodel.core.drafters.kinds.blocks import (
        dflash_drafter as dflash_drafter,
        dspark_drafter as dspark_drafter,
    )
    from specmodel.core.drafters.kinds.eagle import (
        eagle3_drafter as eagle3_drafter,
        eagle_drafter as eagle_drafter,
        p_eagle_drafter as p_eagle_drafter,
        parallel_drafter as parallel_drafter,
    )
    from specmodel.core.drafters.kinds.models import (
        model_drafter as model_drafter,
        ngram_drafter as ngram_drafter,
        pard_drafter as pard_drafter,
        suffix_drafter as suffix_drafter,
    )
    from specmodel.core.drafters.kinds.mtp import mtp_drafter as mtp_drafter
    from specmodel.core.drafters.passes import Drafter as Drafter
    from specmodel.core.machines.engine import (
        EngineProfile as EngineProfile,
        list_engines as list_engines,
        load_engine as load_engine,
    )
    from specmodel.core.machines.hardware import (
        HardwareProfile as HardwareProfile,
        list_hardware as list_hardware,
        load_hardware as load_hardware,
    )
    from specmodel.core.models.architecture import (
        Architecture as Architecture,
        list_architectures as list_architectures,
        load_architecture as load_architecture,
    )
    from specmodel.core.prediction.decoding import decode as decode
    from specmodel.core.prediction.outcome import Prediction as Prediction
    from specmodel.core.prediction.predicting import predict as predict
    from specmodel.plan import sensitivity as sensitivity, sweeps as sweeps
    from specmodel.show import plots as plots
    from specmodel.simulate.compared import compare as compare
    from specmodel.simulate.load_question import load as load
    from specmodel.simulate.scheduled import schedule as schedule

__version__ = "1.0.0"

__getattr__, __dir__ = front(__name__)
if PathFinder.find_spec("specmodel.show", __path__):  # which nothing below it names
    SHOWN |= {name: late("specmodel.show", name) for name in ("answer", "html", "view", "words")}
