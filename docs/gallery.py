"""Run each command of ``docs/gallery.md`` to draw its pictures and write its pages.

Usage: python docs/gallery.py [FOLDER], by default docs/gallery. With --readme, it draws the figure
of the README instead, notebooks/moesd.png.
"""

import contextlib
import io
import re
import shlex
import sys
from pathlib import Path

from specmodel import cli

DOCS = Path(__file__).resolve().parent
PAGE = DOCS / "gallery.md"
ROOT = DOCS.parent
PAGES = "pages/explore"


def commands() -> list[str]:
    """Return the command lines of the page."""
    blocks = re.findall(r"```sh\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


def pictures() -> list[str]:
    """Return the names of the pictures that the page shows."""
    return re.findall(r"\(gallery/(\w+)\.png\)", PAGE.read_text(encoding="utf-8"))


def run(line: str) -> None:
    """Run a line of commands, each of which reads the output of the command before it."""
    printed = ""
    for command in line.split(" | "):
        stdin, sys.stdin = sys.stdin, io.TextIOWrapper(io.BytesIO(printed.encode()))
        written = io.StringIO()
        try:
            with contextlib.redirect_stdout(written):
                status = cli.main(shlex.split(command)[1:])
        finally:
            sys.stdin = stdin
        if status:
            raise SystemExit(f"status {status} of: {command}")
        printed = written.getvalue()


def main(folder: Path) -> None:
    """Run each line of the page in a folder with a link to the notebooks, whose data some need."""
    folder.mkdir(parents=True, exist_ok=True)
    data = folder / "notebooks"
    with contextlib.chdir(folder):
        data.symlink_to(ROOT / "notebooks")
        try:
            for line in (*commands(), f"specmodel explore --output {PAGES}"):
                run(line)
        finally:
            data.unlink()


def readme() -> None:
    """Draw target efficiency and speedup of an MoE and a dense model, as MoESD has them.

    The tick on the left is the largest speedup in the paper, which does not give its batch size.
    The engine is fitted to such peaks.
    """
    import pandas as pd
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    from specmodel import predict
    from specmodel.show import plots

    tables = []
    for target, drafter in (("qwen2-57b-a14b", "qwen2-0.5b"), ("opt-30b", "opt-350m")):
        found = predict(
            target=target,
            drafter=drafter,
            hardware="a800_sxm_80gb",
            tensor_parallel=2,
            engine="vllm-moesd-2025",
            context_length=300,
            batch_size=range(1, 129),
            draft_length=4,
            tokens_per_step=0.91 * 5,
        )
        tables.append(found.to_frame().assign(target=found.deployment.target.name))
    with rc_context({"font.size": 8}):
        figure = Figure(figsize=(6.8, 2.9), dpi=200, layout="constrained")
        left, right = figure.subplots(1, 2)
        plots.target_efficiency(pd.concat(tables), left)
        peak = tables[0][:1].assign(measured=2.18, batch_size=None)
        plots.speedup(pd.concat(tables), right, measured=peak[["batch_size", "target", "measured"]])
        moe, dense, level, unity = right.get_legend().legend_handles
        left.get_legend().remove()
        right.get_legend().remove()
        level.set(color=moe.get_color(), label="measured peak, 2.18: the engine is fitted to it")
        unity.set_label("verifying is free; break-even")
        entries = [moe, level, dense, unity]  # of both panels, column by column
        title = "Qwen2-57B-A14B and OPT-30B, draft models, two A800, four tokens drafted"
        own = {"loc": "outside upper center", "ncols": 2, "frameon": False, "title": title}
        figure.legend(handles=entries, **own)
        figure.savefig(ROOT / "notebooks" / "moesd.png", metadata={"Software": None})


if __name__ == "__main__" and sys.argv[1:] == ["--readme"]:
    readme()
elif __name__ == "__main__":
    main(Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else DOCS / "gallery")
