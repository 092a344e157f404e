"""llama.cpp's own HTTP server (C++), from the xllamacpp wheel, as a process of its own.

    python -m lib.llama_server -m model.gguf --port 8080 [flags of llama-server]

It takes the flags of llama-server that this project uses, so that a launcher can put it in llama-server's
place. It listens on loopback only. SIGTERM or SIGINT ends it with return code 0.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import ipaddress
import signal
import sys
import threading

POLL_S = 0.05  # the main thread has to come back to Python now and then, or no signal is seen


def parser() -> argparse.ArgumentParser:
    """The subset of llama-server's flags, with its names and defaults."""
    p = argparse.ArgumentParser("lib.llama_server", description=__doc__.splitlines()[0], allow_abbrev=False)
    p.add_argument("--version", action="version", version=version())
    p.add_argument("-m", "--model", required=True, help="GGUF file")
    p.add_argument("--host", default="127.0.0.1", type=_loopback)
    p.add_argument("--port", type=int, default=8080)
    p.add_argument("-a", "--alias", help="name of the model in answers")
    p.add_argument("-c", "--ctx-size", type=int, default=0, help="0: as the model says")
    p.add_argument("-t", "--threads", type=int, default=-1)
    p.add_argument("-tb", "--threads-batch", type=int, default=-1, help="default: as --threads")
    p.add_argument("-b", "--batch-size", type=int)
    p.add_argument("-ub", "--ubatch-size", type=int)
    p.add_argument("-ngl", "--n-gpu-layers", type=int, default=-1)
    p.add_argument("-np", "--parallel", type=int, default=1)
    p.add_argument("-fa", "--flash-attn", choices=("1", "on", "0", "off", "auto"), default="auto")
    p.add_argument("-cram", "--cache-ram", type=int, default=8192, help="MiB")
    p.add_argument("--prio", type=int, default=0, choices=range(-1, 4))
    p.add_argument("--load-mode", choices=("auto", "mmap", "mlock", "mmap+mlock"), default="auto")
    p.add_argument("--ignore-eos", action="store_true")
    p.add_argument("--no-cache-prompt", action="store_true")
    p.add_argument("--no-warmup", action="store_true")
    p.add_argument("--metrics", action="store_true")
    return p


def version() -> str:
    """Version line, from the package's metadata: the library itself does not know its build number."""
    return f"version: xllamacpp {importlib.metadata.version('xllamacpp')}"


def _loopback(host: str) -> str:
    """`host` if it is this machine's own loopback, else argparse's one-line refusal."""
    with contextlib.suppress(ValueError):
        if host == "localhost" or ipaddress.ip_address(host).is_loopback:
            return host
    raise argparse.ArgumentTypeError(f"{host!r} is not loopback; use 127.0.0.1")


def params(args: argparse.Namespace):
    """xllamacpp's CommonParams for parsed flags."""
    import xllamacpp as x

    p = x.CommonParams()
    p.model.path = args.model
    p.hostnames = [args.host]
    p.port = args.port
    p.n_ctx, p.n_parallel, p.n_gpu_layers = args.ctx_size, args.parallel, args.n_gpu_layers
    p.n_batch, p.n_ubatch = args.batch_size or p.n_batch, args.ubatch_size or p.n_ubatch
    p.cpuparams.n_threads = args.threads
    p.cpuparams_batch.n_threads = args.threads_batch if args.threads_batch > 0 else args.threads
    p.cpuparams.priority = p.cpuparams_batch.priority = x.ggml_sched_priority(args.prio)
    flash = {"1": "ENABLED", "on": "ENABLED", "auto": "AUTO"}.get(args.flash_attn, "DISABLED")
    p.flash_attn_type = getattr(x.llama_flash_attn_type, f"LLAMA_FLASH_ATTN_TYPE_{flash}")
    mode = args.load_mode.replace("+", "_").upper()
    p.load_mode = getattr(x.llama_load_mode, f"LLAMA_LOAD_MODE_{mode}")
    p.sampling.ignore_eos = args.ignore_eos
    p.cache_prompt, p.cache_ram_mib = not args.no_cache_prompt, args.cache_ram
    p.warmup, p.endpoint_metrics, p.ui = not args.no_warmup, args.metrics, False
    if args.alias:
        p.model_alias = {args.alias}
    return p


def main(argv: list[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT. Returns 0, or 1 when the server cannot start (its own lines say why)."""
    args = parser().parse_args(argv)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    import xllamacpp

    try:
        server = xllamacpp.Server(params(args))
    except RuntimeError as e:
        print(f"lib.llama_server: {e}", file=sys.stderr)
        return 1
    print(f"lib.llama_server: listening at {server.listening_address}", flush=True)
    while not stop.wait(POLL_S):
        pass
    del server
    return 0


if __name__ == "__main__":
    sys.exit(main())
