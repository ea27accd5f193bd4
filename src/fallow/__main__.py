"""``python -m fallow``: the same command as ``fallow``."""

from __future__ import annotations

from fallow.cli import main

if __name__ == "__main__":
    main()
