#!/usr/bin/env python3
"""Writes the inputs of the vectors: folders `random`, `low` and `runs`, with one file `data` each. `vectors.rs` makes the same bytes."""
import os

MASK = (1 << 64) - 1


def words(state):
    """splitmix64"""
    while True:
        state = (state + 0x9E3779B97F4A7C15) & MASK
        z = state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        yield z ^ (z >> 31)


def data(seed, alphabet, run, length):
    """Bytes below `alphabet`, each up to `run` times: of every two bytes of a word, lowest first, the value and the times."""
    out = bytearray()
    for word in words(seed):
        for pair in range(4):
            value, times = word >> (16 * pair) & 255, word >> (16 * pair + 8) & 255
            out += bytes([value % alphabet]) * (1 + times % run)
        if len(out) >= length:
            return bytes(out[:length])


for name, (seed, alphabet, run) in {"random": (1, 256, 1), "low": (2, 16, 1), "runs": (3, 200, 9)}.items():
    os.makedirs(name, exist_ok=True)
    with open(name + "/data", "wb") as file:
        file.write(data(seed, alphabet, run, 1_000_003))
