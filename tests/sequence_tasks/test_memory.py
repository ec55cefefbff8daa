"""The largest setting of the paper fits a common machine."""

import subprocess
import sys

import pytest

EPISODE = """
import resource, torch
from sequence_tasks.settings import SequenceTask
from sequence_tasks.training import SequenceTrainer
torch.set_num_threads(1)
settings = SequenceTask(length=8, batch=256, candidates=64, epochs=1, reward="bag_of_tokens")
SequenceTrainer(settings, range(20), torch.device("cpu")).advance(1)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.slow
def test_twenty_seeds_of_the_largest_groups_fit():
    """K = 64, B = 256, H = 8: below 20 GiB by far, since a seed's gradient is computed alone and in parts."""
    result = subprocess.run([sys.executable, "-c", EPISODE], capture_output=True, text=True, timeout=600, check=True)
    assert int(result.stdout) / 2**20 < 4  # GiB
