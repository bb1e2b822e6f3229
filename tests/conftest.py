"""Before any test imports torch: `learning` sets how its threads wait (see learning/__init__.py)."""

import learning

__all__ = ["learning"]
