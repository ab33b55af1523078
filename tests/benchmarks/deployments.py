"""Time a loop over every model, every GPU and three drafters; each deployment is new.

Run by hand: python tests/benchmarks/deployments.py [every nth model; default 1]
"""

import itertools
import sys
import time
from collections import Counter

from specmodel import InputError, list_architectures, list_hardware, predict

DRAFTERS = ("ngram", "eagle3", "mtp")
POINT = {"batch_size": 8, "draft_length": 4, "context_length": 512, "acceptance": 0.7}


def main(step: int) -> None:
    models, gpus = list_architectures()[::step], list_hardware()
    outcomes, start = Counter[str](), time.process_time()
    for target, hardware, drafter in itertools.product(models, gpus, DRAFTERS):
        try:
            _ = predict(target, hardware, drafter=drafter, **POINT).speedup
            outcomes["predicted"] += 1
        except InputError:  # a model that no count of them holds, or a drafter of another one
            outcomes["refused"] += 1
    seconds = time.process_time() - start
    each = seconds / outcomes.total() * 1e3
    print(f"{len(models)} models, {len(gpus)} GPUs, {len(DRAFTERS)} drafters: {dict(outcomes)}")
    print(f"{seconds:.0f} s, {each:.1f} ms each")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
