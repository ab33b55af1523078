"""Predict target efficiency and speedup of speculative decoding on Mixture-of-Experts models.

Names load on first use, so that importing the package costs nothing. See `predict`.
"""

from importlib.machinery import PathFinder
from typing import TYPE_CHECKING

from specmodel.base.fronts import SHOWN, front, late

if TYPE_CHECKING:
    from specmodel import (
        answers as answers,
        cost as cost,
        fit as fit,
        measure as measure,
        show as show,
        simulate as replay,  # noqa: F401 - its name before
        simulate as serving,  # noqa: F401 - its name before
        simulate as simulate,
    )
    from specmodel.algebra import experts as experts, moesd as moesd, speculation as speculation
    from specmodel.algebra.acceptance import Acceptance as Acceptance
    from specmodel.answers import sensitivity as sensitivity, sweeps as sweeps
    from specmodel.base.errors import InputError as InputError
    from specmodel.cost.deploying import deploy as deploy
    from specmodel.cost.deployment import Deployment as Deployment
    from specmodel.drafters.acceptance import (
        list_acceptance as list_acceptance,
        load_acceptance as load_acceptance,
    )
    from specmodel.drafters.by_name import (
        list_drafters as list_drafters,
        load_drafter as load_drafter,
    )
    from specmodel.drafters.kinds.blocks import (
        dflash_drafter as dflash_drafter,
        dspark_drafter as dspark_drafter,
    )
    from specmodel.drafters.kinds.eagle import (
        eagle3_drafter as eagle3_drafter,
        eagle_drafter as eagle_drafter,
        p_eagle_drafter as p_eagle_drafter,
        parallel_drafter as parallel_drafter,
    )
    from specmodel.drafters.kinds.models import (
        model_drafter as model_drafter,
        ngram_drafter as ngram_drafter,
        pard_drafter as pard_drafter,
        suffix_drafter as suffix_drafter,
    )
    from specmodel.drafters.kinds.mtp import mtp_drafter as mtp_drafter
    from specmodel.drafters.passes import Drafter as Drafter
    from specmodel.machines.engine import (
        EngineProfile as EngineProfile,
        list_engines as list_engines,
        load_engine as load_engine,
    )
    from specmodel.machines.hardware import (
        HardwareProfile as HardwareProfile,
        list_hardware as list_hardware,
        load_hardware as load_hardware,
    )
    from specmodel.models.architecture import (
        Architecture as Architecture,
        list_architectures as list_architectures,
        load_architecture as load_architecture,
    )
    from specmodel.prediction.decoding import decode as decode
    from specmodel.prediction.outcome import Prediction as Prediction
    from specmodel.prediction.predicting import predict as predict
    from specmodel.show import plots as plots
    from specmodel.simulate.compared import compare as compare
    from specmodel.simulate.load_question import load as load
    from specmodel.simulate.scheduled import schedule as schedule

__version__ = "1.0.0"

__getattr__, __dir__ = front(__name__)
if PathFinder.find_spec("specmodel.show", __path__):  # which nothing below it names
    SHOWN |= {name: late("specmodel.show", name) for name in ("answer", "view", "words")}
