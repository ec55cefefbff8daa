"""``python -m llm_rlvr experiment=NAME preset=smoke|quick|paper task=NAME model=NAME [key=value ...]``.

``accelerate launch --config_file configs/llm_rlvr/accelerate/NAME.yaml --num_processes N -m llm_rlvr ...`` trains in N
processes.
"""

from common.launch.main import main
from llm_rlvr import processes

INTERRUPTED = 130
"""Exit status after Ctrl-C, which the other processes have seen, too."""


def first_or_follow() -> int:
    """Run the command line, or train along with the process that does, and return the exit status."""
    if processes.count() == 1:
        return main("llm_rlvr")
    processes.join()
    if not processes.is_first():
        from llm_rlvr.training import follow  # takes seconds

        follow()
        return 0
    status = main("llm_rlvr")
    if status != INTERRUPTED:
        processes.of_the_first(None)
    return status


if __name__ == "__main__":
    raise SystemExit(first_or_follow())
