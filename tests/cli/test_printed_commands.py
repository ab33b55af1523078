"""Every command that an answer prints runs: of 40 popular deployments, and in each --help.

What is printed is a command (``specmodel compare``), an option to add (``--graph-limit 2048``), a
line for an engine, which ``predict`` reads too, or an option of the engine itself.
"""

import io
import json
import re
import shlex
import shutil
from collections import deque
from importlib.util import find_spec
from pathlib import Path

import click
import pytest
from fuzzed_files import write_files
from printed import check_one_line, commands, in_one_line

from specmodel.cli.commands import main_group
from specmodel.core.cost.launch_lines import typed_flag

DATA = Path(__file__).parents[1] / "data"
POPULAR = (DATA / "popular.txt").read_text(encoding="utf-8").splitlines()
_OFTEN = ("qwen3-235b h200 --drafter eagle3", "llama-3.1-8b h100")
_SLOW = pytest.mark.slow
DEPLOYMENTS = [pytest.param(p, marks=[] if p in _OFTEN else _SLOW) for p in POPULAR]

LOAD = "--prompt-length 1024 --output-length 1024"
ANSWERS, OF_ENGINES = commands("answers of a deployment"), commands("options of engines")
OF_FILES = ("acceptance", "calibrate", "fit", "list")
"""Commands that a deployment alone is not typed after."""
_COMMAND = re.compile(r"specmodel ([a-z][a-z-]*)((?: --[a-z-]+ \w+(?:\.\w+)*)*)")
_OPTION = re.compile(
    r"(--[a-z][a-z-]+)((?: \d+(?:\.\d+)?(?:ms)?| typical| vllm-\d\.\d+)?)(?![\w-])"
)
_SGLANG = re.compile(r"--speculative-algorithm \w+(?: --speculative-[a-z-]+ \w+)+")
_SIZES = re.compile(r" --batch-size \S+")
_SIMULATED = re.compile("^load|--for-load")
"""What takes many seconds, and minutes without numba."""
_DRAFTER = re.compile(r" --drafter \S+")
_JSON = re.compile(r"""--speculative-config '(\{[^']*\})'""")


def known_options(name):
    """The options of a command, by name, with whether each is a flag."""
    command = main_group.get_command(click.Context(main_group), name)
    options = (each for each in command.params if isinstance(each, click.Option))
    return {word: option.is_flag for option in options for word in option.opts}


def commands_in(page, typed, deployment):
    """Command lines that a page tells, which answered `typed` on a deployment."""
    text, known = in_one_line(page), known_options(typed.partition(" ")[0])
    undrafted = _DRAFTER.sub("", deployment)
    for config in _JSON.findall(text):
        if "per_batch_size" not in config:  # a schedule, which other tests give to the engine
            yield f"predict {undrafted} --speculative-config {shlex.quote(config)}"
    for flags in _SGLANG.findall(text):
        yield f"predict {undrafted} --engine sglang {flags}"
    for other, options in _COMMAND.findall(text):
        assert main_group.get_command(click.Context(main_group), other), other
        if other not in OF_FILES:
            yield f"{other} {deployment}{options}"
    for option, value in _OPTION.findall(_COMMAND.sub("", _SGLANG.sub("", _JSON.sub("", text)))):
        if option not in known:
            is_launch = typed_flag(option, deque()) is not None
            assert is_launch or option in OF_ENGINES or option in known_options("predict"), option
        elif known[option]:
            yield f"{typed} {option}"
        elif value and option not in typed:
            yield f"{typed} {option}{value}"


@pytest.mark.parametrize("deployment", DEPLOYMENTS)
def test_commands_of_answers_run(deployment, ended, request):
    done, is_slow = set(), request.config.getoption("slow") and find_spec("numba")
    simulates = is_slow and POPULAR.index(deployment) % 4 == 0  # many minutes in all

    def answer(command):
        """The page of a command, with the acceptance that a refusal tells to give."""
        status, page, err = ended(command)
        if status:
            check_one_line(status, page, err, [])
            if "--acceptance typical" in err:
                return answer(f"{command} --acceptance typical")
            if "such as --acceptance-rate 0.7" in err:
                return answer(f"{command} --acceptance-rate 0.7")
            # of targets whose tasks are published, and of drafters that the engine schedules
            assert "--view: got 'tasks'" in err or "With --for" in err, err
        return page

    for form in ANSWERS:
        where = _SIZES.sub("", deployment) if form.startswith("schedule") else deployment
        command = form.format(_DRAFTER.sub("", where) if form.endswith("plain") else where)
        for told in commands_in(answer(command), command, _SIZES.sub("", deployment)):
            if told not in done and (simulates or not _SIMULATED.search(told)):
                done.add(told)
                assert answer(told), f"{told}, told by {command}"
    assert len(done) > 3


def examples():
    """Command lines of the examples in each help, those of subcommands after their group's."""
    context = click.Context(main_group)
    for name in ("", *main_group.list_commands(context)):
        command = main_group.get_command(context, name) if name else main_group
        inner = command.commands.values() if name and isinstance(command, click.Group) else ()
        helps = "\n".join(each.help or "" for each in (command, *inner))
        lines = _EXAMPLE.findall(helps.replace("\\\n", " "))
        yield [in_one_line(line) for line in lines if not _SERVES.match(line)]


_EXAMPLE = re.compile(r"^ +specmodel (.+)$", flags=re.MULTILINE)
_SERVES = re.compile(r"explore(?!.*--output)")


NEEDS = {"load": "numba", "explore": "jinja2", "calibrate": "torch", "fit": "scipy"}
"""What commands need that is not always installed; loads take minutes without."""


@pytest.fixture(scope="module")
def of_a_user(tmp_path_factory):
    """A folder with files of the names that examples have, and a profile of the user's own."""
    pytest.importorskip("pyarrow")
    folder = tmp_path_factory.mktemp("user")
    write_files(folder)
    (folder / "own/specmodel").mkdir(parents=True)
    h200 = Path(__file__).parents[2] / "hw_profiles/h200_sxm.toml"
    shutil.copy(h200, folder / "own/specmodel/mine.toml")
    for name, other in {"plain": "vllm_plain", "eagle3": "vllm_eagle3"}.items():
        shutil.copy(folder / f"{other}.json", folder / f"{name}.json")
    shutil.copy(folder / "kernels.csv", folder / "h200.csv")
    shutil.copy(DATA / "my_module.txt", folder / "my_module.py")
    return folder


@pytest.mark.parametrize("lines", [pytest.param(e, id=e[0]) for e in examples() if e])
def test_examples_of_helps_run(lines, of_a_user, ended, tmp_path, monkeypatch):
    """In turn, on files of their names, as a user has who follows them; searches are short."""
    for line in lines:
        pytest.importorskip(NEEDS.get(line.split()[0], "numpy"))
    shutil.copytree(of_a_user, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "own"))
    short = dict.fromkeys((True, False), (1, 60))
    monkeypatch.setattr("specmodel.simulate.load_question.RUNS", short)
    for line in lines:
        first, *pipe = line.split(" | specmodel ")
        first += " --dry-run" if first.startswith("calibrate") else ""  # minutes otherwise
        is_on_gpu = "--device cuda" in line
        is_written = not is_on_gpu and "--dry-run" not in first
        outputs = re.findall(r"--output (\S+)", first) if is_written else []
        for output in outputs:
            Path(output).unlink(missing_ok=True)
        status, out, err = ended(first)
        assert status == 0 or (is_on_gpu and "--device: got 'cuda'" in err), (line, err)
        assert out or status
        assert all(Path(output).stat().st_size for output in outputs)
        for command in pipe:
            monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(out.encode())))
            assert ended(command)[0] == 0, line


@pytest.mark.parametrize("deployment", ["deepseek-v3 8xh200", "qwen3-30b-a3b 2xh100"])
def test_the_path_of_an_operator_runs(deployment, ended, tmp_path, monkeypatch):
    """From results of ``vllm bench serve`` on a node to a line that the server takes."""
    monkeypatch.chdir(tmp_path)
    target, gpus = deployment.split()
    drafter = "mtp" if target == "deepseek-v3" else "eagle3"

    def page(command):
        status, out, err = ended(command)
        assert status == 0, (command, err)
        return out

    points = "--draft-length 3 --tokens-per-step 2.4 --batch-size 8,32 --json"
    predicted = json.loads(page(f"predict {deployment} --drafter {drafter} {LOAD} {points}"))
    for row in predicted["rows"]:
        write_results(target, row)
    files = [f"{kind}{size}.json" for kind in ("plain", "drafted") for size in (8, 32)]
    ready = page(f"acceptance {files[2]}").replace("\\\n", " ")
    assert "--acceptance-by-position" in ready
    told = re.search(r"^specmodel (predict .*)$", ready, re.M)[1]
    for word, own in (("MODEL", target), ("GPU", gpus), ("DRAFTER", drafter)):
        told = told.replace(word, own)
    page(told)
    fit = f"fit engine {' '.join(files)} --target {target} --hardware {gpus} --drafter {drafter}"
    told = page(f"{fit} --output mine.toml").replace("\\\n", " ")
    command = re.search(r"^specmodel (predict .*)$", told, re.M)[1]
    assert "--engine ./mine.toml" in command
    assert "--prompt-length 1024" in command
    fitted = json.loads(page(f"{command} --batch-size 8,32 --draft-length 3 --json"))["rows"]
    for row, own in zip(fitted, predicted["rows"], strict=True):
        assert row["tpot"] == pytest.approx(own["tpot"], rel=0.05)  # what was measured
    page(command)  # as it was printed
    schedule = command.replace("predict", "schedule", 1)
    config = json.loads(page(f"{schedule} --fragment-only"))
    assert config["num_speculative_tokens"] >= 1


def write_results(target, row):
    """Write what ``vllm bench serve --save-result`` does of a point, plain and drafted."""
    size, requests = row["batch_size"], 4 * row["batch_size"]
    rates = [0.7, 0.45, 0.25]  # of all drafts: 2.4 tokens a step
    drafts = requests * 1023 / 2.4
    shared = {
        "model_id": target, "backend": "vllm", "endpoint_type": "openai", "request_rate": "inf",
        "num_prompts": requests, "completed": requests, "max_concurrency": size,
        "total_input_tokens": 1024 * requests, "total_output_tokens": 1024 * requests,
    }  # fmt: skip
    counted = {
        "spec_decode_num_drafts": round(drafts), "spec_decode_draft_tokens": 3 * round(drafts),
        "spec_decode_accepted_tokens": round(1.4 * drafts),
        "spec_decode_acceptance_length": 2.4, "spec_decode_acceptance_rate": 100 * 1.4 / 3,
        "spec_decode_per_position_acceptance_rates": rates,
    }  # fmt: skip
    for kind, time, more in (("plain", "plain_tpot", {}), ("drafted", "tpot", counted)):
        tpot = row[time] if time in row else row["tpot"] * row["speedup"]
        result = shared | more | {"mean_tpot_ms": 1e3 * tpot, "duration": 4 * 1100 * tpot}
        result["output_throughput"] = result["total_output_tokens"] / result["duration"]
        Path(f"{kind}{size}.json").write_text(json.dumps(result))
