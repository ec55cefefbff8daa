"""How the tests lie on the disk."""

from collections import Counter
from pathlib import Path


def test_every_test_module_has_a_name_of_its_own() -> None:
    """Pytest imports them without their folders, and stops at the second of a name only where both are collected."""
    names = Counter(path.name for path in Path(__file__).parent.rglob("*.py") if path.name != "conftest.py")
    assert [name for name, count in names.items() if count > 1] == []
