"""Whatever is typed wrong: status 2, one line on stderr that names the argument and the value."""

import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest
from printed import typed_wrong
from programs import start
from rows import cases, each_row

BASE = "predict --target qwen2-57b-a14b --drafter qwen2-0.5b --hardware h200_sxm"
BASE += " --batch-size 4 --draft-length 3"
GOOD = BASE + " --acceptance-rate 0.7"
NGRAM = GOOD + " --drafter ngram"

FILES = Path(__file__).parents[1] / "data/bad_input"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("files")
    shutil.copytree(FILES, path, dirs_exist_ok=True)
    (path / "folder.toml").mkdir()
    (path / "huge.toml").write_bytes((path / "good.toml").read_bytes() + b"#" * 4_000_001)
    return path


MOE = f"{GOOD} --target qwen3-30b-a3b --drafter ngram"
STRANGE = [
    (f"{GOOD} --hardware {'h' * 5000}", ["--hardware", "hhh...hhh"]),
    (f"{GOOD} --target org/{'m' * 3000}", ["--target", "mmm...mmm"]),
    (f"{GOOD} --context-length 1{'0' * 5000}", ["--context-length", "000...000"]),
    (f"{GOOD} --set {'x' * 500}", ["--set", "xxx...xxx"]),
    (f"{GOOD} --set 'hardware.two\nlines=7'", ["--set hardware.two lines", "got 7;"]),
    (f"{GOOD} --batch-size '1\n2\nx'", ["--batch-size", r"'1\n2\nx'"]),
    ("trace preset code-eagle", ["got 'preset'; expected describe, ngram, sample\n"]),
    ("trace sample code-eagle", ["option '--output' (specmodel trace sample --help)\n"]),
]
if find_spec("starlette"):  # the extra of the page
    HOST = ("explore --no-browser --public --host 256.1.1.1", ["--host: got '256.1.1.1'"])
    STRANGE.append(HOST)
OTHERS = ("drain", "published_acceptance", "pasted", "decode", "host_speed", "compressed")
OTHERS += ("recurrent", "answer_commands", "two_words", "load_rates", "schedule_command")
OTHERS += ("sensitivity_command",)
CASES = typed_wrong("bad_input", predict=GOOD, acceptance=BASE, experts=MOE) + STRANGE
CASES += [row for name in OTHERS for row in typed_wrong(name)]
"""An error names the option as it was typed, and none that was not."""
SETTINGS = ("--set target.num_layers=4000", "--set engine.pass_time=3.7")


@cases("setting", *SETTINGS, "--routing-correlation 0.9")
def test_force_takes_what_no_machine_or_model_has(setting, document):
    assert document(f"{MOE} {setting} --force")


@each_row(("command", "fragments"), CASES)
def test_one_line_names_the_argument_and_the_value(command, fragments, folder, refuse):
    refuse(*(text.replace("{folder}", str(folder)) for text in (command, *fragments)))


@cases(
    "command",
    GOOD,
    f"{GOOD} --target {{folder}}/good.json --drafter eagle3",
    f"{GOOD} --hardware {{folder}}/good.toml --tensor-parallel 1 --stack typical --interval",
)
def test_what_the_bad_cases_start_from_is_accepted(command, folder, ended):
    status, out, err = ended(command.replace("{folder}", str(folder)))
    assert (status, err) == (0, "")
    assert "peedup" in out


def test_the_bare_program_asks_five_questions(ended):
    status, out, err = ended("")
    assert (status, err) == (0, "")
    assert out.count("\n  specmodel ") == out.count("?\n") == 5


def test_closed_pipe_is_silent():
    with start(f"{NGRAM} --batch-size 1:1000 --csv") as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_full_disk_is_said_in_one_line():
    with Path("/dev/full").open("wb") as full, start(NGRAM, stdout=full) as process:
        err = process.stderr.read().decode()
    assert process.returncode != 0
    assert err.startswith("specmodel: error: ")
    assert len(err.splitlines()) == 1


SAMPLED = "trace sample code-ngram --output x.jsonl --requests=9"


@cases("command", f"{GOOD} --view terms", GOOD.replace("predict", "sweep"), SAMPLED)
def test_too_little_memory_is_one_line(command, monkeypatch, ended):
    def fail(*_arguments, **_named):
        raise MemoryError

    for place in ("plan.explain", "plan.sweeps.csv_chunks", "simulate.traces.sample_trace"):
        monkeypatch.setattr(f"specmodel.{place}", fail)
    remedy = "fewer points or requests, or more memory"
    told = f"specmodel: error: memory: too little for this; expected {remedy}\n"
    assert ended(command) == (2, "", told)
