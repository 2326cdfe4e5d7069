"""python -m tools.findings [FOLDER EXPERIMENTS]: write the index, and the page of every file of rows in a folder.

Without arguments: docs/findings and findings.
"""

from __future__ import annotations

import sys
from pathlib import Path

from ansatz.errors import AnsatzError
from tools.findings.pages import write_pages


def main() -> None:
    """Write the pages, or print why that is not possible and exit with code 2."""
    if len(sys.argv) not in (1, 3):
        sys.exit(__doc__)
    folder, sweeps = map(Path, sys.argv[1:] or ("docs/findings", "findings"))
    try:
        for path in write_pages(folder, sweeps):
            print(path)
    except AnsatzError as error:
        print(f"ansatz: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
