"""`python -m reconciler` is the command `reconciler`."""

from __future__ import annotations

import os


def main() -> None:
    """Run the command line. A Ctrl-C while its modules are still being imported ends it quietly, too."""
    try:
        from reconciler import cli

        cli.main()
    except KeyboardInterrupt:
        os._exit(130)


if __name__ == "__main__":
    main()
