"""The engine's side of a weight push from a file. Only vLLM's workers import it (`worker_extension_cls`).

It uses vLLM's own weight-transfer API, version 0.32. On a CPU, vLLM packs linear weights when it loads them. If the
output embedding is tied to the input embedding, that API leaves the old packed copy in place, so it is packed again
here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from safetensors.torch import load_file
from vllm.distributed.weight_transfer.base import (  # pyright: ignore[reportMissingImports]
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.distributed.weight_transfer.factory import (  # pyright: ignore[reportMissingImports]
    WeightTransferEngineFactory,
)
from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm  # pyright: ignore[reportMissingImports]
from vllm.model_executor.model_loader.reload import (  # pyright: ignore[reportMissingImports]
    finalize_layerwise_reload,
    initialize_layerwise_reload,
)
from vllm.platforms import current_platform  # pyright: ignore[reportMissingImports]


@dataclass
class FileInitInfo(WeightTransferInitInfo):
    pass


@dataclass
class FileUpdateInfo(WeightTransferUpdateInfo):
    path: str


class FileTransfer(WeightTransferEngine):
    """Loads a safetensors file with the names of the Hugging Face folder, each tied weight once."""

    init_info_cls = FileInitInfo
    update_info_cls = FileUpdateInfo

    def init_transfer_engine(self, init_info: FileInitInfo) -> None:
        """Do nothing: a file needs no connection."""

    def start_weight_update(self) -> None:
        initialize_layerwise_reload(self.model)

    def update_weights(self, update_info: dict[str, Any]) -> None:
        self.receive_weights(self.parse_update_info(update_info))

    def receive_weights(self, update_info: FileUpdateInfo) -> None:
        self.model.load_weights(load_file(update_info.path).items())

    def finish_weight_update(self) -> None:
        finalize_layerwise_reload(self.model, self.model_config)
        head = getattr(self.model, "lm_head", None)
        if current_platform.is_cpu() and head is not None and self.model_config.hf_text_config.tie_word_embeddings:
            dispatch_cpu_unquantized_gemm(head, remove_weight=False)

    def shutdown(self) -> None:
        """Do nothing: there are no resources to release."""


class Extension:
    """vLLM imports this class in each worker, and with it this module, which registers the transfer `file`."""


WeightTransferEngineFactory.register_engine("file", FileTransfer)
