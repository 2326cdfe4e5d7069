"""vLLM as the rollout engine: in this process tree, or as a server over HTTP (extra `vllm`; see docs/vllm.md).

sampler      the `Sampler`: what is kept over an engine's death, and weights pushed
response     one response, whatever its engine: what to ask for next and what to make of the answer; no torch
engine       what both drivers offer, and the settings that both hand to vLLM
colocated    the driver over `vllm.LLM`
server, serve  the driver over HTTP, and the process that it starts
processes    ending an engine whole
weights      the trainer's side of a push
transfer     the engine's side of it: imported by vLLM's workers alone
"""

from ansatz.rollout.vllm.sampler import VllmSampler

__all__ = ["VllmSampler"]
