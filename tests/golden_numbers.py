"""The parity cases that are installed with Ansatz, as they are in the file."""

import gzip
import json
from typing import Any

from ansatz.certify.parity import GOLDEN


def entries() -> list[dict[str, Any]]:
    return json.loads(gzip.decompress(GOLDEN.read_bytes()))
