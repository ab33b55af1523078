"""Describe what models run on: GPUs, their links, fitted kernels and engines."""

from typing import TYPE_CHECKING

from specmodel.core.base.fronts import front

if TYPE_CHECKING:
    from specmodel.core.machines.engine import (
        EngineProfile as EngineProfile,
        list_engines as list_engines,
        load_engine as load_engine,
    )
    from specmodel.core.machines.fallbacks import choose_kernels as choose_kernels
    from specmodel.core.machines.graphs import graph_limit as graph_limit
    from specmodel.core.machines.hardware import (
        HardwareProfile as HardwareProfile,
        list_hardware as list_hardware,
        load_hardware as load_hardware,
    )
    from specmodel.core.machines.kernels import (
        FittedStack as FittedStack,
        KernelFit as KernelFit,
        Kernels as Kernels,
        load_typical as load_typical,
    )

__getattr__, __dir__ = front(__name__)
