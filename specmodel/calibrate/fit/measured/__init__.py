"""Read measurements of whole engines, and compare them with predictions."""

from typing import TYPE_CHECKING

from specmodel.core.base.fronts import front

if TYPE_CHECKING:
    from specmodel.calibrate.fit.measured.formats import read_benchmarks as read_benchmarks
    from specmodel.calibrate.fit.measured.judge import (
        JudgedEngines as JudgedEngines,
        judge_serving as judge_serving,
        judged_engines as judged_engines,
        judged_facts as judged_facts,
    )
    from specmodel.calibrate.fit.measured.runs import (
        Run as Run,
        arguments_of_runs as arguments_of_runs,
        check_model as check_model,
        named_checkpoint as named_checkpoint,
        named_model as named_model,
        placed as placed,
        served_runs as served_runs,
    )
    from specmodel.calibrate.fit.measured.tables import (
        ServingTable as ServingTable,
        read_serving as read_serving,
    )

__getattr__, __dir__ = front(__name__)
