"""vLLM as the rollout engine: in child processes, or as a server over HTTP (extra `vllm`; see docs/cluster.md).

vllm         the engine as a recipe names it
sampler      the `Sampler`: restarts an engine that dies, and pushes weights
response     one response, whatever its engine: what to request next and how to take in the output; no torch
engine       the interface of both drivers, and the settings that both pass to vLLM
colocated    the driver over `vllm.LLM`
server       the driver over HTTP
serve        the process that the server driver starts
processes    ends an engine with all of its processes
weights      the trainer's side of a weight push
transfer     the engine's side of a weight push; only vLLM's workers import it
"""

from ansatz.rollout.vllm.sampler import VllmSampler

__all__ = ["VllmSampler"]
