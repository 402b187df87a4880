"""Run by the peer's own Python: loads MODEL in llama.cpp and answers commands on stdin with seconds on stdout;
"cpu" as the fourth argument: processor seconds.

    ids FILE         int32 token ids to use from now on, instead of made-up ones
    prefill N        a fresh context takes N tokens in one call
    decode N         N more tokens, one at a time
    logits N FILE    a fresh context takes N tokens; float32 [N, vocab], after each of them, go to the file

Further arguments: vocab=N (tokens are drawn from so many ids), repack=0 (weights stay as they are in the mapped file),
ubatch=N (tokens that go through a layer together), io=1 (an answer is seconds, bytes read from drives, major page
faults).
"""

import array
import ctypes
import os
import resource
import sys
import time

import llama_cpp as L

path, threads, context = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
options = {"vocab": 490, "repack": 1, "ubatch": 512, "io": 0} | {
    k: int(v) for k, v in (a.split("=") for a in sys.argv[5:])
}
clock = time.process_time if sys.argv[4] == "cpu" else time.perf_counter
quiet = os.dup(1)
os.dup2(2, 1)  # whatever the library prints goes to stderr
L.llama_backend_init()
mp = L.llama_model_default_params()
mp.n_gpu_layers = 0
mp.use_extra_bufts = bool(options["repack"])
model = L.llama_model_load_from_file(path.encode(), mp)
cp = L.llama_context_default_params()
cp.n_ctx, cp.n_batch, cp.n_ubatch = context, context, options["ubatch"]
cp.n_threads = cp.n_threads_batch = threads
ctx = L.llama_init_from_model(model, cp)
if not ctx:
    sys.exit("llama.cpp cannot run this model")


ids = array.array("i")


def token(i: int) -> int:
    return ids[i] if ids else (i * 7919 + 13) % options["vocab"]


def logits(count: int, name: str) -> None:
    n_vocab = L.llama_vocab_n_tokens(L.llama_model_get_vocab(model))
    L.llama_memory_clear(L.llama_get_memory(ctx), True)
    batch = L.llama_batch_init(count, 0, 1)
    batch.n_tokens = count
    for i in range(count):
        batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token(i), i, 1, 1
        batch.seq_id[i][0] = 0
    if L.llama_decode(ctx, batch) != 0:
        sys.exit("llama_decode failed")
    with open(name, "wb") as file:
        for i in range(count):
            file.write(ctypes.string_at(L.llama_get_logits_ith(ctx, i), 4 * n_vocab))
    L.llama_batch_free(batch)


def run(first: int, count: int) -> None:
    tokens = (L.llama_token * count)(*(token(first + i) for i in range(count)))
    if L.llama_decode(ctx, L.llama_batch_get_one(tokens, count)) != 0:
        sys.exit("llama_decode failed")
    L.llama_get_logits_ith(ctx, -1)


def answer(text: str) -> None:
    os.write(quiet, (text + "\n").encode())


answer("ready")
position = 0
for line in sys.stdin:
    command, n, *rest = line.split()
    before = resource.getrusage(resource.RUSAGE_SELF)
    start = clock()
    if command == "ids":
        with open(n, "rb") as file:
            ids = array.array("i", file.read())
    elif command == "logits":
        logits(int(n), rest[0])
    elif command == "prefill":
        L.llama_memory_clear(L.llama_get_memory(ctx), True)
        start = clock()
        run(0, int(n))
        position = int(n)
    else:
        for _ in range(int(n)):
            run(position, 1)
            position += 1
    text = str(clock() - start)
    if options["io"]:
        after = resource.getrusage(resource.RUSAGE_SELF)
        # Blocks of 512 bytes.
        text += f" {512 * (after.ru_inblock - before.ru_inblock)} {after.ru_majflt - before.ru_majflt}"
    answer(text)
