"""What the tests of ``specmodel simulate`` share: command lines, files, and how output is read."""

import re
import shlex

from printed import check_one_line

from specmodel import cli

MINE = "test_simulate_policies"
MEASURED = "simulate --step-times times.csv --trace trace.jsonl"
PREDICTED = (
    "simulate --target mixtral-8x7b --weight-dtype fp8 --drafter ngram --hardware rtx_6000_ada"
    " --memory-utilization 0.95 --engine ideal --trace code-ngram --requests 12 --output-tokens 60"
)
HEAD = PREDICTED + " --target olmoe-1b-7b --drafter eagle --trace code-eagle"
NAMES = ["none", "fixed:1", "fixed:2", "fixed:3", "best-fixed", "cascade", "oracle"]
LONG = (
    "cascade:first_draft_length=1:backoff_factor=1,cascade:first_draft_length=1:climb=false,"
    f"{MINE}:Fixed:length=3,{MINE}:Given,specmodel.replay.policies:Goodput:window=20"
)

POLICIES = '''class Fixed:
    def __init__(self, length=2):
        self.length = length

    def propose(self):
        return self.length

    def observe(self, emitted_tokens, step_time):
        pass


class Given(Fixed):
    """Takes all that it can be given; the generator decides."""

    phase = "test"

    def __init__(self, step_time, max_draft_length, draft_lengths, generator, least=0):
        assert len(step_time) == len(draft_lengths) == max_draft_length + 1
        assert step_time == sorted(step_time)
        self.generator, self.range = generator, (least, max_draft_length + 1)

    def propose(self):
        return self.generator.integers(*self.range)


class Returns(Fixed):
    def __init__(self, what):
        self.length = object() if what == "object" else what


class Raises(Fixed):
    ERRORS = {
        "value": ValueError("two\\nlines"),
        "exit": SystemExit(3),
        "interrupt": KeyboardInterrupt(),
    }

    def __init__(self, where, what="value"):
        super().__init__()
        self.where, self.error = where, self.ERRORS[what]
        self.fail("init")

    def fail(self, where):
        if where == self.where:
            raise self.error

    def propose(self):
        self.fail("propose")
        return 2

    def observe(self, emitted_tokens, step_time):
        self.fail("observe")


class Late(Fixed):
    """Fails only after some other requests were replayed without fault."""

    seen = 0

    def observe(self, emitted_tokens, step_time):
        Late.seen += emitted_tokens
        if Late.seen > 200:
            Late.seen = 0
            raise RuntimeError("late")


class Dies(Fixed):
    def propose(self):
        import multiprocessing, os

        if multiprocessing.parent_process() is not None:
            os._exit(9)
        return 1


class Helped(Fixed):
    """Imports a module beside its own."""

    from test_simulate_helper import LENGTH

    def __init__(self):
        self.length = self.LENGTH


class Bare:
    made = 0

    def __init__(self):
        Bare.made += 1


class Half:
    def propose(self):
        return 1


class NoMethods:
    propose, observe = 1, 2


class Arguments(Fixed):
    def propose(self, context):
        return 1


def make():
    return Fixed(3)


nameless = lambda: Fixed(1)
constant = 3
'''

TRACE = (
    '{"schema": "specmodel-trace", "schema_version": 1, "max_draft_length": 3,'
    ' "num_requests": 2, "metadata": {}}\n'
    '{"proposed_tokens": [3, 0], "accepted_tokens": [1, 0]}\n'
    '{"proposed_tokens": [3], "accepted_tokens": [2]}\n'
)
TIMES = "draft_length,step_time\n0,0.01\n1,0.012\n2,0.014\n"
PRESET = 'schema_version = 1\nname = "mine"\nsurvival = [0.7, 0.5]\nproposal_share = 0.8\n'


def changed(text: str, old: str, new: str) -> bytes:
    assert text.count(old) == 1
    return text.replace(old, new).encode()


FILES = {
    "test_simulate_policies.py": POLICIES.encode(),
    "test_simulate_broken.py": b"raise RuntimeError('at\\nimport')\n",
    "test_simulate_syntax.py": b"class (:\n",
    "short.jsonl": TRACE.encode(),
    "cut.jsonl": TRACE[:-9].encode(),
    "preset.toml": PRESET.encode(),
    "rising.toml": changed(PRESET, "0.5", "0.9"),
    "short.csv": TIMES.encode(),
    "experts.csv": b"draft_length,step_time,expert_time\n0,1,0\n1,1.2,0.3\n2,1.3,0.4\n",
    "slow.csv": b"draft_length,step_time\n0,99999\n1,999999\n2,1000000\n",
    "flat.csv": ("draft_length,step_time\n" + "".join(f"{k},1\n" for k in range(41))).encode(),
    "column.csv": changed(TIMES, "step_time", "time"),
    "gap.csv": changed(TIMES, "\n1,", "\n3,"),
    "zero.csv": changed(TIMES, "0.012", "0"),
    "blank.csv": changed(TIMES, "0.012", ""),
    "huge.csv": changed(TIMES, "0.012", "1e300"),
    "text.csv": changed(TIMES, "0.012", "fast"),
    "ragged.csv": TIMES.encode() + b"3,0.016,7,8\n",
    "overdone.csv": b"draft_length,step_time,expert_time\n0,1,0\n1,1.2,1.2\n2,1.3,0.4\n",
    "table.json": b"[[17, 64, 2], [1, 16, 3]]",
    "list.json": b"[]",
    "malformed.json": b"[[1, 16,",
    "slots.json": b'{"1": {"candidate_steps": [2, 4]}}',
    "bare.json": b'{"1": [2, 4]}',
    "prompts.jsonl": TRACE.replace("}\n", ', "prompt_tokens": 900}\n')
    .replace('{}, "prompt_tokens": 900}', "{}}")
    .encode(),
    "shlex.py": b"raise RuntimeError('the folder was on the path')\n",
    "test_simulate_helper.py": b"LENGTH = 3\n",
    "kept.csv": b"kept",
    "kept.png": b"kept",
}  # fmt: skip


def typed(names):
    """Names of policies as typed: the best fixed one is shown with its draft length."""
    return [re.sub(r"^best-fixed:\d+$", "best-fixed", name) for name in names]


def policy_case(policy, *fragments):
    """A command with a policy that cannot be used, and what the error must contain."""
    return f"{MEASURED} --policy none,{shlex.quote(policy)}", *(fragments or ("--policy:", policy))


REPLAYED = ("propose", "observe", "Returns", "Fixed:length=two", "Argument")
"""What only a replay can show."""


def listing(folder):
    names = (path for path in folder.rglob("*") if "__pycache__" not in path.parts)
    return {str(path): path.read_bytes() if path.is_file() else None for path in names}


def check_refused(command, fragments, folder, capsys, monkeypatch):
    """The command fails in one line, writes nothing, and replays only if it must to know."""

    def too_late(*_, **__):
        raise AssertionError("a replay was begun")

    before = listing(folder)
    with monkeypatch.context() as patch:
        if not any(word in command for word in REPLAYED):
            patch.setattr("specmodel.replay.run.replay_blocks", too_late)
        status = cli.main(shlex.split(command))
    check_one_line(status, *capsys.readouterr(), fragments)
    assert listing(folder) == before
