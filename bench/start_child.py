"""What bench.start runs in a fresh process: prints the seconds of its imports and of getting at a robot's kernels."""

import json
import sys
import time


def start(file: str, device_name: str) -> tuple[float, float]:
    """Import everything, then get at the kernels; the seconds of each."""
    begin = time.perf_counter()
    import torch

    from bench.stages import kernels_in_use
    from trot.sim.load import load_model

    device = torch.device("cuda", 0) if device_name == "cuda" else torch.device("cpu")
    # Wakes the CUDA driver, which any program that uses the GPU does.
    torch.zeros(1, device=device)
    model = load_model(file)
    imported = time.perf_counter()
    kernels_in_use(model, 1, device)
    return imported - begin, time.perf_counter() - imported


if __name__ == "__main__":
    print(json.dumps(start(*sys.argv[1:])))
