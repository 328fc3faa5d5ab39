"""One tokenizer in many threads and processes: equal results, no lock that a fork could inherit, the GIL released."""

from __future__ import annotations

import copy
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from webtext.tokenizer import Tokenizer

from .conftest import CORPORA, SAMPLES


def run_in_threads(works: list[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_eight_threads_may_hammer_one_tokenizer(trained: Tokenizer, corpus_slice: Callable[[str], str]) -> None:
    chunks = [corpus_slice(name)[:20_000] for name in CORPORA]
    expected = [trained.encode(chunk) for chunk in chunks]
    spans = [trained.encode_with_offsets(chunk) for chunk in chunks]
    wrong: list[str] = []

    def work(seed: int) -> None:
        for turn in range(6):
            place = (seed + turn) % len(chunks)
            chunk, ids = chunks[place], expected[place]
            stream = trained._encode_stream()
            results = {
                "encode": trained.encode(chunk) == ids,
                "count": trained.count(chunk, "all") == len(ids),
                "flat": trained.encode_flat([chunk, chunk], threads=2)[0].tolist() == ids * 2,
                "offsets": trained.encode_with_offsets(chunk) == spans[place],
                "stream": stream.push(chunk.encode()).tolist() + stream.finish().tolist() == ids,
                "decode": trained.decode(ids) == chunk,
            }
            wrong.extend(name for name, is_right in results.items() if not is_right)

    run_in_threads([lambda seed=seed: work(seed) for seed in range(8)])  # type: ignore[misc]
    assert not wrong


@pytest.mark.parametrize("call", ["encode", "encode_numpy", "encode_flat", "encode_buffer", "count", "decode_bytes"])
def test_other_python_threads_run_while_one_encodes(
    trained: Tokenizer, corpus_slice: Callable[[str], str], call: str
) -> None:
    """This thread records the time repeatedly; some of its times must be in the middle of the other thread's calls.

    If the calls kept the GIL, the times could only be near the start or the end of a call, where Python switches
    threads. It is very unlikely that the system paused three of the calls just there.
    """
    data = (corpus_slice("en").encode() * 100)[: 4 << 20]
    ids = trained.encode_numpy(data)
    calls: dict[str, Callable[[], object]] = {
        "encode": lambda: trained.encode(data[: 2 << 20]),
        "encode_numpy": lambda: trained.encode_numpy(data),
        "encode_flat": lambda: trained.encode_flat([data] * 2, threads=2),
        "encode_buffer": lambda: trained.encode_buffer(data, [0, 1000, len(data)]),
        "count": lambda: trained.count(data),
        "decode_bytes": lambda: trained.decode_bytes(ids),
    }
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    try:
        n_overlaps = n_calls = 0
        while n_overlaps < 3 and n_calls < 60:
            n_calls += 1
            span: list[float] = []

            def timed(span: list[float] = span) -> None:
                span.append(time.perf_counter())
                calls[call]()
                span.append(time.perf_counter())

            thread = threading.Thread(target=timed)
            thread.start()
            ticks = []
            while thread.is_alive():
                ticks.append(time.perf_counter())
            thread.join()
            middle = [0.7 * span[0] + 0.3 * span[1], 0.4 * span[0] + 0.6 * span[1]]
            n_overlaps += any(middle[0] < tick < middle[1] for tick in ticks)
    finally:
        sys.setswitchinterval(interval)
    assert n_overlaps == 3


def _keep_encoding(tokenizer: Tokenizer, stop: threading.Event) -> None:
    while not stop.is_set():
        tokenizer.encode_flat(SAMPLES * 200, threads=2)
        tokenizer.encode_batch(SAMPLES, allowed_special="all")


@pytest.mark.parametrize("n_forks", [3, pytest.param(20, marks=pytest.mark.slow)])
def test_no_lock_is_held_over_any_of_many_forks(small: Tokenizer, n_forks: int) -> None:
    """Each child encodes with two threads; an alarm kills it if it waits forever."""
    expected = small.encode_batch(SAMPLES)
    stop = threading.Event()
    thread = threading.Thread(target=_keep_encoding, args=(small, stop))
    thread.start()
    try:
        for _ in range(n_forks):
            child = os.fork()
            if child == 0:
                signal.alarm(300)
                os._exit(0 if small.encode_batch(SAMPLES, threads=2) == expected else 1)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        stop.set()
        thread.join()


def test_a_spawned_process_gets_an_equal_tokenizer(small: Tokenizer) -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.map_async(small.encode, SAMPLES).get(timeout=300) == [small.encode(text) for text in SAMPLES]


def test_copies_and_pickles_keep_everything(small: Tokenizer) -> None:
    for again in (pickle.loads(pickle.dumps(small)), copy.copy(small), copy.deepcopy(small)):
        assert again.encode(SAMPLES[2]) == small.encode(SAMPLES[2])
        assert (again.hash, again.special_tokens, again.pattern) == (small.hash, small.special_tokens, small.pattern)


def test_a_pickle_contains_the_vocabulary_and_no_table_made_from_it(trained: Tokenizer) -> None:
    """GPT-2: 50,257 tokens of 6.4 bytes on average and two ids per merge: 1.2 MB pickled; the tables are many times larger."""
    trained.encode_with_offsets("fill what is made when it is first used")
    assert len(pickle.dumps(trained)) < 29 * trained.vocab_size


def test_threads_may_be_the_first_to_need_numpy() -> None:
    """One imports it, and the others wait without the GIL."""
    code = """
import sys, threading
from webtext.tokenizer import Tokenizer
tokenizer = Tokenizer.train(["low lower lowest"], vocab_size=260)
assert "numpy" not in sys.modules
sys.setswitchinterval(1e-5)
for _ in range(4):
    threading.Thread(target=tokenizer.encode_numpy, args=("low lower",)).start()
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


RACES = """
import sys, threading
import numpy as np
from webtext.base.errors import InputError
from webtext.tokenizer import Tokenizer

call, path = sys.argv[1:]
tokenizer = Tokenizer.load(path)
tokenizer_sizes = [len(tokenizer.decode_bytes([id_])) for id_ in range(256, tokenizer.vocab_size - 1)]
longest = 256 + tokenizer_sizes.index(max(tokenizer_sizes))
ids = np.zeros(1 << 20, np.int64)
data = np.frombuffer(bytearray(b"lower and lower " * (1 << 16)), np.uint8)
offsets = np.arange(0, len(data) + 1, 16)
out = np.zeros(len(data) + 8, np.uint16)
rounds = {"decode": 60, "encode": 12, "out": 12}[call]
stop = False

def write():
    turn = 0
    while not stop:
        turn += 1
        place = turn * 4099 % (1 << 20)
        if call == "decode":
            ids[place : place + 4096] = (longest, 0, -1, 1 << 62)[turn % 4]
        elif call == "encode":
            data[place : place + 4096] = np.uint8((0xF0, 0x20, 0x61, 0xC3)[turn % 4])
        else:
            out[place : place + 4096] = 0xFFFF

writer = threading.Thread(target=write)
writer.start()
outcomes = set()
for _ in range(rounds):
    try:
        if call == "decode":
            ids[:] = 0
            tokenizer.decode_bytes(ids)
        elif call == "encode":
            tokenizer.encode_buffer(data, offsets)
        else:
            tokenizer.encode_buffer(bytes(data), [0, len(data)], out=out)
        outcomes.add("returned")
    except InputError as error:
        outcomes.add("changed" if "changed" in str(error) else "unknown id")
stop = True
writer.join()
print(sorted(outcomes))
for text in (b"lower and lower ", b"\\xf0\\xf0 \\xc3a", b"a lowera"):
    assert tokenizer.encode(text) == Tokenizer.load(path).encode(text)
"""


@pytest.mark.parametrize("call", ["decode", "encode", "out"])
def test_an_array_that_another_thread_writes_crashes_no_call(call: str, tmp_path: Path) -> None:
    """The call returns or raises, whatever it reads, and later calls are right. A crash would kill the child."""
    words = ["lower and lower and the longest of all words in it, unquestionablynever ends"] * 3
    Tokenizer.train(words, vocab_size=330).save(tmp_path / "tokenizer.json")
    command = [sys.executable, "-c", RACES, call, str(tmp_path / "tokenizer.json")]
    child = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert (child.returncode, child.stderr) == (0, "")
    if call == "decode":
        assert "changed" in child.stdout or "unknown id" in child.stdout


def test_workers_memory_is_bounded_after_a_parallel_call() -> None:
    """Eight threads fill tables of known pieces, 32 MB each; together they keep 128 MB at most."""
    code = """
from webtext.tokenizer import Tokenizer
def resident():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmRSS")).split()[1]) // 1000
tokenizer = Tokenizer.train(["low lower lowest"], vocab_size=260)
letters = bytes.maketrans(b"0123456789", b"ghijklmnop")
texts = [b" ".join(b"%06x" % (number * 40503 % 2**24) for number in range(start, start + 20_000)).translate(letters)
         for start in range(0, 3_000_000, 20_000)]
before = resident()
for _ in range(2):
    tokenizer.encode_flat(texts, threads=8)
print(resident() - before)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 200
