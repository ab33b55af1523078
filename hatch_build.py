"""What a published wheel has beside the repository: what ships, compiled, to be read at once.

An install that cannot be written to, as in a container, then starts as fast as others. Building it
takes some seconds, so that it is asked for: HATCH_BUILD_HOOK_ENABLE_CUSTOM=1 pip wheel .
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from shutil import copytree, ignore_patterns
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_COMPILE = """
from contextlib import suppress
import specmodel
import specmodel.cli.settings
from specmodel.simulate.traces.synthetic import list_presets, load_preset

for name in specmodel.list_hardware():
    specmodel.load_hardware(name)
for name in specmodel.list_engines():
    specmodel.load_engine(name)
for name in list_presets():
    load_preset(name)
for name in specmodel.list_architectures():
    specmodel.load_architecture(name)
    for engine in specmodel.list_engines():
        with suppress(specmodel.InputError):  # of models that do not fit, or whose drafter it lacks
            specmodel.predict(name, "h200", engine=engine, acceptance_rate=0.5).report()
"""


# hatchling names the type of a builder's settings, which no hook needs
class CompiledRecords(BuildHookInterface):  # type: ignore[type-arg]
    """Compile in a copy of the package as it is installed, and add what that keeps to the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add compiled records to a wheel; an editable install keeps its own beside the files."""
        if version == "editable":
            return
        staged = Path(tempfile.mkdtemp())  # read when the wheel is written, after this
        no_caches = ignore_patterns("__pycache__")
        copytree(Path(self.root, "specmodel"), staged / "specmodel", ignore=no_caches)
        hardware = staged / "specmodel/machines/data/hardware"
        copytree(Path(self.root, "hw_profiles"), hardware, ignore=no_caches)
        command = [sys.executable, "-c", _COMPILE]
        paths = os.pathsep.join([str(staged), *sys.path])  # with what the build depends on
        subprocess.run(command, cwd=staged, env={"PYTHONPATH": paths}, check=True)
        for file in staged.rglob("__pycache__/*.pickle"):
            build_data["force_include"][str(file)] = str(file.relative_to(staged))
