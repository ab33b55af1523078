"""`specmodel simulate`: what it says of policies that cannot be used."""

import re
import shlex

from rows import each_row
from simulated import MEASURED, MINE, PREDICTED, check_refused, policy_case


def said_of(given):
    """What an error says of a value."""
    return "none given" if given == "None" else f"got {given}"


RETURNED = [
    *(("-1", "-1"), ("8", "8"), ("2.0", "2.0"), ("true", "True"), ("null", "None")),
    *(("text", "'three'"), ("NaN", "nan"), ("object", "'object'"), ("huge", "10000")),
]
OWN = [
    *(
        policy_case(
            f"{MINE}:Returns:what={what}",
            f"--policy Returns: {said_of(given)}",
            "a whole draft length from 0 to 7",
        )
        for what, given in RETURNED
    ),
    *(
        policy_case(
            f"{MINE}:Raises:where={where}:what={what}",
            *("--policy", shown, expected),
        )
        for where, expected in (
            ("init", "expected one that can be made"),
            ("propose", f"replays the whole trace ({MINE}.py:"),
            ("observe", f"replays the whole trace ({MINE}.py:"),
        )
        for what, shown in (("value", r"ValueError: two\nlines"), ("exit", "SystemExit: 3"))
    ),
    policy_case(f"{MINE}:Raises:where=init:what=input", "--policy mine: got 3; expected four"),
    policy_case(f"{MINE}:Bare", f"--policy {MINE}:Bare: got 'a Bare'", "propose() and observe("),
    policy_case(f"{MINE}:Half", f"--policy {MINE}:Half: got 'a Half'", "propose() and observe("),
    policy_case(f"{MINE}:NoMethods", "a NoMethods", "propose() and observe("),
    policy_case("collections:Counter", "--policy collections:Counter: got 'a Counter'"),
    policy_case(f"{MINE}:Arguments", "--policy Arguments: got", "TypeError: Arguments.propose()"),
    policy_case(f"{MINE}:OneArgument", "--policy OneArgument: got", "TypeError: OneArgument.obs"),
    policy_case(f"{MINE}:Needs", f"--policy {MINE}:Needs", "TypeError", "needed"),
    policy_case(f"{MINE}:Fixed:no=3", f"--policy {MINE}:Fixed:no=3", "TypeError", "can be made"),
    policy_case(f"{MINE}:Fixed:length=two", "--policy Fixed: got 'two'"),
    policy_case(f"{MINE}:Fixed:length=1:length=2", "--policy:", "expected length once"),
    policy_case(f"{MINE}:Fixed:length", "--policy:", "name=value"),
    policy_case(f"{MINE}:Fixed:a b=2", "--policy:", "name=value"),
    policy_case(f"{MINE}:Absent", "--policy:", "has Absent"),
    policy_case(f"{MINE}:constant", "--policy:", "a class or function"),
    policy_case(f"{MINE}:", "--policy:", "module:Class"),
    policy_case(":Fixed", "--policy:", "module:Class"),
    policy_case(MINE, "--policy:", "module:Class"),
    policy_case(f"{MINE}.sub:Fixed", "--policy:", "is not a package"),
    policy_case(f".{MINE}:Fixed", "--policy:", "imported"),
    policy_case(f"{MINE}/a:Fixed", "--policy:", "imported"),
    policy_case("test_simulate_broken:A", "--policy:", "has A (RuntimeError: at import)"),
    policy_case("test_simulate_syntax:A", "--policy:", "SyntaxError", "line 1"),
    policy_case("test_simulate_exit:A", "--policy:", "SystemExit: 5"),
    policy_case("test_simulate_needy:A", "--policy:", "has A (", "named 'no_such_module_at_all'"),
    policy_case("no_such_module:A", "--policy:", "No module named 'no_such_module'"),
    policy_case("casade:tolerance=0.1", "--policy:", "a known name such as cascade"),
    policy_case("Fixed:3", "--policy:", "a known name such as", "fixed"),
]  # fmt: skip

SETTING = [
    policy_case(f"cascade:max_trials={'[' * 90_000}", "--policy: got", "JSON that is not so deep"),
    *(
        policy_case(f"cascade:{name}={value}", f"--policy cascade.{name}: got {given}", expected)
        for name, value, given, expected in (
            ("max_draft_length", "30", "30", "at most 7, the longest"),
            ("max_draft_length", "0", "0", "greater than or equal to 1"),
            ("max_draft_length", "x", "'x'", "a valid integer"),
            ("first_draft_length", "9", "9", "at most max_draft_length = 7"),
            ("max_trials", "3.5", "3.5", "a valid integer"),
            ("max_trials", "true", "True", "a valid integer"),
            ("set_iterations", "1e9", "1000000000.0", "a valid integer"),
            ("set_iterations", "1000000001", "1000000001", "less than or equal to 1000000000"),
            ("trial_iterations", "1" + "0" * 30, "1000", "less than or equal to 1000000000"),
            ("backoff_factor", "0", "0", "greater than or equal to 1"),
            *(
                ("tolerance", value, given, "expected")
                for value, given in (("x", "'x'"), ("-1", "-1"), ("NaN", "nan"), ("true", "True"))
            ),
            ("climb", "1", "1", "a valid boolean"),
            ("early_exit", "yes", "'yes'", "a valid boolean"),
            ("first_direction", "left", "'left'", "'by utility', 'up' or 'down'"),
        )
    ),
    *(
        policy_case(
            f"{re.sub('[ .]', ':', place)}={value}", f"--policy {place}: {said_of(given)}", "expec"
        )
        for place, value, given in (
            ("goodput window", "0", "0"),
            ("goodput window", "1.5", "1.5"),
            ("goodput window", "x", "'x'"),
            ("goodput first_acceptance_rate", "1", "1"),
            ("goodput first_acceptance_rate", "NaN", "nan"),
            ("goodput probe_interval", "1.5", "1.5"),
            ("sglang num_steps", "2", "2"),
            ("sglang.ema_alpha", "0", "0"),
            ("sglang.ema_alpha", "x", "'x'"),
            ("sglang.warmup_batches", "x", "'x'"),
            ("sglang.warmup_batches", "-1", "-1"),
            ("sglang.update_interval", "1.5", "1.5"),
            ("sglang config", "absent.json", "'absent.json'"),
            ("sglang config", "malformed.json", "'malformed.json'"),
            ("sglang config", "list.json", "'list.json'"),
            ("sglang config", "null.json", "'null.json'"),
            ("bandit discount", "0", "0"),
            ("bandit discount", "x", "'x'"),
            ("bandit width", "Infinity", "inf"),
            ("bandit width", "true", "True"),
        )
    ),
    *(
        policy_case(policy, f"--policy: got '{policy}'", expected)
        for policy, expected in (
            ("nope", "module:Class, or a known name"),
            ("best_fixed", "best-fixed"),
            ("cascade:max_trial=3", "a setting it has: max_trials"),
            ("goodput:step_time=3", "window"),
            ("goodput:memory=20", "window"),
            ("sglang:weight=0.3", "ema_alpha"),
            ("bandit:generator=3", "discount"),
            ("cascade:max_trials", "name=value"),
            ("cascade:", "name=value"),
            ("cascade:=3", "name=value"),
            ("cascade:max_trials=3:max_trials=4", "max_trials once"),
            ("oracle:1", "no settings"),
            ("none:", "no settings"),
            ("best-fixed:3", "no settings"),
            ("adaptive-verification", "single requests: this one looks at the batch"),
            *((f"fixed{rest}", "such as fixed:3") for rest in ("", ":", ":x", ":-1", ":1.5")),
            ("fixed:3:4", "such as fixed:3"),
            ("fixed:²", "such as fixed:3"),
            ("fixed:99", "at most 7, the longest"),
            ("fixed:1" + "0" * 17, "at most 7, the longest"),
            ("fixed:1" + "0" * 30, "such as fixed:3"),
            ("table:1-16=99", "at most 7, the longest"),
            ("table:long.json", "at most 7, the longest"),
            ("table:", "a JSON file"),
            ("table:absent.json", "No such file"),
            ("table:folder.csv", "a directory"),
            ("table:malformed.json", "a JSON file"),
            ("table:deep.json", "a JSON file"),
            ("table:1-16", "entries such as"),
            ("table:1-16=x", "entries such as"),
            ("table:1-16=3:", "entries such as"),
            ("table:5=3", "entries such as"),
            ("table:1=3", "entries such as"),
        )
    ),
    *(
        policy_case(f"table{rest}", f"--policy table: {said_of(given)}")
        for rest, given in (
            ("", "[]"),
            (":list.json", "[]"),
            (":number.json", "3"),
            (":null.json", "None"),
            (":reversed.json", "[16, 1, 3]"),
            (":two.json", "[1, 16]"),
            (":fraction.json", "[1, 16, 2.5]"),
            (":16-1=3", "[16, 1, 3]"),
            (":0-16=3", "[0, 16, 3]"),
            (":5-10=3", "[5, 10, 3]"),
            (":1-8=3:8-16=2", "[8, 16, 2]"),
        )
    ),
    *(
        (f"{MEASURED} --policy {shlex.quote(text)}", f"--policy: got '{culprit}'")
        for text, culprit in (
            *(("", ""), ("none,", ""), ("none, ,oracle", "")),
            *(("none, none", "none"), ("fixed:1,fixed:01", "fixed:1")),
            ("best-fixed,cascade,best-fixed", "best-fixed"),
        )
    ),
]  # fmt: skip

CASES = [
    *OWN,
    *SETTING,
    policy_case(
        "sglang:config=bare.json", "--policy sglang config 1: got [2, 4]", "a valid dictionary"
    ),
    (f"{MEASURED} --policy-state batch", "--policy-state", "'request', 'server'"),
    (f"{MEASURED} --fixed-context", "--step-times: got 'times.csv'", "no --fixed-context"),
    (
        f"{PREDICTED} --trace math-ngram --set runaway_share=0.1",
        "--set runaway_share: got 0.1",
        "0, as",
    ),
    (f"{PREDICTED} --set runaway_share=2", "--set runaway_share: got 2"),
]


@each_row(("command", "fragments"), [(command, told) for command, *told in CASES])
def test_one_line_names_the_policy_before_any_work(command, fragments, folder, capsys, monkeypatch):
    check_refused(command, fragments, folder, capsys, monkeypatch)
