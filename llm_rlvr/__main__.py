"""``python -m llm_rlvr experiment=NAME preset=smoke|quick|paper task=NAME model=NAME [key=value ...]``."""

from common.launch.main import main

if __name__ == "__main__":
    raise SystemExit(main("llm_rlvr"))
