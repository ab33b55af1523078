"""`specmodel simulate`: what it says of policies that cannot be used."""

import re
import shlex

from rows import each_row
from simulated import MEASURED, MINE, PREDICTED, check_refused, policy_case


def said_of(given):
    """What an error says of a value."""
    return "none given" if given == "None" else f"got {given}"


RETURNED = [
    *(("-1", "-1"), ("8", "8"), ("true", "True"), ("null", "None"), ("object", "'object'")),
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
            ("init", "expected one that can be created"),
            ("propose", f"replays the whole trace ({MINE}.py:"),
            ("observe", f"replays the whole trace ({MINE}.py:"),
        )
        for what, shown in (("value", r"ValueError: two\nlines"), ("exit", "SystemExit: 3"))
    ),
    policy_case(f"{MINE}:Bare", f"--policy {MINE}:Bare: got 'a Bare'", "propose() and observe("),
    policy_case(f"{MINE}:NoMethods", "a NoMethods", "propose() and observe("),
    policy_case(f"{MINE}:Arguments", "--policy Arguments: got", "TypeError: Arguments.propose()"),
    policy_case(f"{MINE}:Fixed:no=3", f"--policy {MINE}:Fixed:no=3", "TypeError", "can be created"),
    policy_case(f"{MINE}:Fixed:length=1:length=2", "--policy:", "expected length once"),
    policy_case(f"{MINE}:constant", "--policy:", "a class or function"),
    policy_case(f"{MINE}.sub:Fixed", "--policy:", "is not a package"),
    policy_case("test_simulate_broken:A", "--policy:", "has A (RuntimeError: at import)"),
    policy_case("test_simulate_syntax:A", "--policy:", "SyntaxError", "line 1"),
    policy_case("casade:tolerance=0.1", "--policy:", "a known name such as cascade"),
]  # fmt: skip

SETTING = [
    policy_case(f"cascade:max_trials={'[' * 90_000}", "--policy: got", "JSON that is not so deep"),
    *(
        policy_case(f"cascade:{name}={value}", f"--policy cascade.{name}: got {given}", expected)
        for name, value, given, expected in (
            ("max_draft_length", "30", "30", "at most 7, the longest"),
            ("first_draft_length", "9", "9", "at most max_draft_length = 7"),
            ("set_iterations", "1000000001", "1000000001", "less than or equal to 1000000000"),
            ("early_exit", "yes", "'yes'", "a valid boolean"),
        )
    ),
    *(
        policy_case(
            f"{re.sub('[ .]', ':', place)}={value}", f"--policy {place}: {said_of(given)}", "expec"
        )
        for place, value, given in (
            ("goodput window", "x", "'x'"),
            ("sglang config", "absent.json", "'absent.json'"),
        )
    ),
    *(
        policy_case(policy, f"--policy: got '{policy}'", expected)
        for policy, expected in (
            ("nope", "module:Class, or a known name"),
            ("best_fixed", "best-fixed"),
            ("cascade:max_trial=3", "a setting of this policy: max_trials"),
            ("goodput:step_time=3", "window"),
            ("cascade:max_trials=3:max_trials=4", "max_trials once"),
            ("adaptive-verification", "single requests: this one needs a batch"),
            *((f"fixed{rest}", "such as fixed:3") for rest in ("", ":", ":x", ":-1", ":1.5")),
            ("table:malformed.json", "a JSON file"),
        )
    ),
    *(
        policy_case(f"table{rest}", f"--policy table: {said_of(given)}")
        for rest, given in (
            (":list.json", "[]"),
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
