"""Define drafters: how they propose tokens, in which passes, and their acceptance."""

from typing import TYPE_CHECKING

from specmodel.core.base.fronts import front

if TYPE_CHECKING:
    from specmodel.core.drafters.acceptance import (
        list_acceptance as list_acceptance,
        load_acceptance as load_acceptance,
    )
    from specmodel.core.drafters.by_name import (
        drafter_kind as drafter_kind,
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

__getattr__, __dir__ = front(__name__)
