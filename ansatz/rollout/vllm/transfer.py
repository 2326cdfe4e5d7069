"""The engine's side of a push, imported by vLLM's workers alone (`worker_extension_cls`): weights from a file.

It goes through vLLM's own weight-transfer API, version 0.32. On a CPU linear weights are packed when they are loaded,
and that API leaves the old packed output embedding in place where it is tied to the input's: it is packed again here.
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
    """Safetensors under the names of the Hugging Face folder; of tied weights the one name."""

    init_info_cls = FileInitInfo
    update_info_cls = FileUpdateInfo

    def init_transfer_engine(self, init_info: FileInitInfo) -> None:
        """There is nobody to meet."""

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
        """Nothing is held."""


class Extension:
    """Named to vLLM so that each worker imports this module, which makes `file` known."""


WeightTransferEngineFactory.register_engine("file", FileTransfer)
