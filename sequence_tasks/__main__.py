"""``python -m sequence_tasks experiment=NAME preset=smoke|quick|paper objective=NAME [key=value ...]``."""

from common.launch.main import main

if __name__ == "__main__":
    raise SystemExit(main("sequence_tasks"))
