"""Fit engines and hosts together: the host times of each engine, and how much hosts differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from specmodel.calibrate.fit.measured.tables import Served
from specmodel.calibrate.fit.result import rounded, rounded_rows
from specmodel.calibrate.fit.steps import RUN_SPREAD, VERIFY_SPREAD, MeasuredSteps, measured_steps
from specmodel.calibrate.fit.update import FACTOR_SPREADS, HOST_SPREAD
from specmodel.core.base.units import FloatArray
from specmodel.core.machines.engine import FACTORS, Overheads
from specmodel.core.prediction.intervals import DEPLOYMENT_SPREAD

VARIED = (
    *("pass_time", "reject_time", "draft_pass_time", "tree_time", "reject_time_per_request"),
    "eager_kernel_time",
)
"""Host times that describe an engine."""

TYPICAL = (1.0e-3, 0.6e-3, 0.3e-3, 0.7e-3, 0.03e-3, 0.05e-3)
"""Expected values of `VARIED` before the fit, from measured spans of hosts and draft passes in
several engines [s]."""

TYPICAL_SPREAD = 1.0
"""Standard deviation of the logarithms of `TYPICAL` [-]."""

ENGINE_SPREAD = 0.5
"""Spread of the host seconds of engines: the most likely of 0.3, 0.5 and 0.8 [-]."""

PLAIN_SPREAD = 0.12
"""Spread of a plain step with an unknown share of prefill [-]."""


class Population(Struct, frozen=True, kw_only=True, eq=False):
    """Result of a fit of engines and hosts together.

    `logarithms` are the logarithms of the times `VARIED`, shape (engines, 6), with their joint
    covariance. `host_speed` is relative to the mean host. `errors` are predicted over measured
    minus one, for the rows of each engine [-].
    """

    engines: tuple[str, ...]
    hosts: tuple[str, ...]
    logarithms: FloatArray
    host_speed: FloatArray
    covariance: FloatArray
    errors: Mapping[str, FloatArray]

    def error_of(self, engine: str) -> float:
        """Return the mean absolute error of an engine's rows [-]."""
        return float(np.abs(self.errors[engine]).mean())

    def overheads(self, engine: str) -> dict[str, float]:
        """Return the seconds of an engine on the mean host [s]."""
        seconds = np.exp(self.logarithms[self.engines.index(engine)])
        return {name: rounded(value) for name, value in zip(VARIED, seconds, strict=True)}

    def fit_record(self, engine: str) -> dict[str, Any]:
        """Return how well an engine is known on an unmeasured host, as fields of `EngineFit`.

        Beside the seconds of the engine, the speed of the host and the time of the GPU vary, by as
        much as hosts and deployments differ.
        """
        place, size = self.engines.index(engine) * len(VARIED), len(VARIED)
        own = self.covariance[place : place + size, place : place + size]
        spreads = [0.0] * size + [FACTOR_SPREADS[name] for name in FACTORS]
        covariance = np.diag(np.square(spreads))
        covariance[:size, :size] = own
        return {
            "varied": [*VARIED, *FACTORS],
            "covariance": rounded_rows(covariance),
            "spread": rounded(np.hypot(RUN_SPREAD, VERIFY_SPREAD)),
        }


def fit_population(
    rows: Sequence[Served], engines: Sequence[str], hosts: Sequence[str]
) -> Population:
    """Fit engines and hosts to measured speedups and steps, each row of a named engine and host.

    Engines may follow that no row has: they get the mean engine. The logarithms of an engine's
    seconds are normal around those of the mean engine, the speed of a host is normal around 1, and
    so are two factors of each target on each host: on all time of the GPU, and on steps with a
    draft. Engines with few rows therefore stay near the others.
    """
    from scipy.optimize import least_squares

    model = _Model(rows, engines, hosts)
    solved = least_squares(model.residuals, model.start)
    covariance = np.linalg.inv(solved.jac.T @ solved.jac)
    means, logarithms, speed, *_ = model.parts(solved.x)
    first = means.size
    of_engines = slice(first, first + logarithms.size)
    error = model.steps.predicted(*model.of_rows(solved.x)) / model.steps.measured - 1
    return Population(
        engines=model.engines,
        hosts=model.hosts,
        logarithms=logarithms,
        host_speed=np.exp(speed),
        covariance=covariance[of_engines, of_engines],
        errors={
            name: error[model.of_engine == place]
            for place, name in enumerate(model.engines)
            if (model.of_engine == place).any()
        },
    )


class _Model:
    """The residuals of a population by one vector of parameters."""

    def __init__(self, rows: Sequence[Served], engines: Sequence[str], hosts: Sequence[str]):
        deployments = [
            f"{host}/{row.labels['model']}" for row, host in zip(rows, hosts, strict=True)
        ]
        self.engines, self.of_engine = _numbered(engines)
        self.hosts, self.of_host = _numbered(hosts)
        self.deployments, self.of_deployment = _numbered(deployments)
        self.of_engine = self.of_engine[: len(rows)]
        self.steps = measured_steps(rows)
        self.plain, self.of_plain = _plain_steps(rows, deployments)

    @property
    def start(self) -> FloatArray:
        """Return where the search begins, at the typical values."""
        typical = np.log(TYPICAL)
        zeros = np.zeros(len(self.hosts) + 2 * len(self.deployments))
        return np.concatenate([typical, np.tile(typical, len(self.engines)), zeros])

    def parts(self, x: FloatArray) -> list[FloatArray]:
        """Return mean engine, engines, speeds of hosts, and both factors of deployments."""
        sizes = [len(VARIED), len(VARIED) * len(self.engines), len(self.hosts)]
        sizes += [len(self.deployments)]
        means, engines, speed, gpu, verify = np.split(x, np.cumsum(sizes))
        return [means, engines.reshape(-1, len(VARIED)), speed, gpu, verify]

    def of_rows(self, x: FloatArray) -> tuple[Overheads, FloatArray]:
        """Return overheads and verify factor of each row."""
        _, engines, speed, gpu, verify = self.parts(x)
        own = np.exp(engines[self.of_engine]).T
        factors = {
            "host_speed": np.exp(speed[self.of_host]),
            "gpu_time_factor": np.exp(gpu[self.of_deployment]),
        }
        overheads = Overheads(**dict(zip(VARIED, own, strict=True)), **factors)
        return overheads, np.exp(verify[self.of_deployment])

    def residuals(self, x: FloatArray) -> FloatArray:
        """Return errors of rows and plain steps, and of expectations, in standard deviations."""
        means, engines, speed, gpu, verify = self.parts(x)
        overheads, factor = self.of_rows(x)
        missed = np.log(self.steps.predicted(overheads, factor) / self.steps.measured)
        names = (*VARIED, *FACTORS)
        own = {name: np.asarray(getattr(overheads, name))[self.of_plain] for name in names}
        plain = self.plain.predicted(Overheads(**own)) if self.of_plain.size else np.ones(0)
        return np.concatenate(
            [
                missed / RUN_SPREAD,
                np.log(plain / self.plain.measured) / PLAIN_SPREAD if plain.size else plain,
                (means - np.log(TYPICAL)) / TYPICAL_SPREAD,
                ((engines - means) / ENGINE_SPREAD).ravel(),
                speed / HOST_SPREAD,
                gpu / DEPLOYMENT_SPREAD,
                verify / VERIFY_SPREAD,
            ]
        )


def _numbered(names: Sequence[str]) -> tuple[tuple[str, ...], np.ndarray]:
    """Return names, each once, and the number of each among them."""
    unique = tuple(dict.fromkeys(names))
    return unique, np.array([unique.index(name) for name in names])


def _plain_steps(
    rows: Sequence[Served], deployments: Sequence[str]
) -> tuple[MeasuredSteps, np.ndarray]:
    """Return plain steps that were measured together with pairs, each once, and a row of each."""
    places: dict[tuple[str, float, float], int] = {}
    for place, (row, deployment) in enumerate(zip(rows, deployments, strict=True)):
        if row.plain_step is not None:
            key = deployment, row.points["batch_size"], row.plain_step
            places.setdefault(key, place)
    alone = [_plain(rows[place]) for place in places.values()]
    return measured_steps(alone or [_plain(rows[0])]), np.array([*places.values()], dtype=int)


def _plain(row: Served) -> Served:
    """Return the plain run of a pair."""
    points: Mapping[str, float] = {**row.points, "draft_length": 0, "verify_tokens": 1}
    deployment = {**row.deployment, "tree_width": 1}
    measured = row.plain_step or row.measured
    return replace(
        row,
        deployment=deployment,
        points=points,
        quantity="step_time",
        tokens_per_step=1.0,
        measured=measured,
    )
