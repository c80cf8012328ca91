"""One kernel by two compilers, and three ways to launch it: `python -m bench.card_compilers`.

The kernel that merges the separators of a tile (`plan._close_tiles`), as it is, in Python compiled
by numba, and the same written in CUDA C++ and compiled by NVRTC; both launched by CuPy. Beside
them, numba's own launch with CuPy's arrays.
"""

import json
import time

import numpy as np

from bench.card import FOLDER, HOUSE, card_machine, events, orders

SOURCE = r"""
extern "C" __global__ void close_tiles(const int* first, const int* rank, int n_levels,
                                       int* partner, int* step, int* n_open) {
  __shared__ int ranks[513], begin[512], end[512], own[512], n_merged;
  int t = threadIdx.x, lo = first[blockIdx.x], count = first[blockIdx.x + 1] - lo;
  if (t == 0) { ranks[count] = rank[lo + count]; n_merged = 0; }
  for (int p = t; p < count; p += 256) {
    ranks[p] = rank[lo + p]; begin[p] = p; end[p] = p + 1; own[p] = -1 - n_levels;
  }
  __syncthreads();
  for (int turn = 1;; turn++) {
    int found = 0;
    for (int p = t; p < count; p += 256)
      if (p > 0 && own[p] < 0 && ranks[begin[p - 1]] < ranks[p] && ranks[end[p]] < ranks[p]) {
        own[p] = 1 << 29; found++;
      }
    if (found) atomicAdd(&n_merged, found);
    if (!__syncthreads_or(found)) break;
    for (int p = t; p < count; p += 256)
      if (own[p] == 1 << 29) {
        int x = begin[p - 1], y = end[p];
        step[lo + p] = turn; own[p] = x; own[x] = -1 - min(ranks[p], n_levels);
        end[x] = y; begin[y - 1] = x;
      }
    __syncthreads();
  }
  for (int p = t; p < count; p += 256) {
    partner[lo + p] = own[p];
    if (own[p] < 0) step[lo + p] = 0;
  }
  if (t == 0) n_open[blockIdx.x] = count - n_merged;
}
"""


def host_microseconds(work, repeats=200):
    """Microseconds of host time per call; the card may still be busy."""
    import cupy

    work()
    cupy.cuda.Device().synchronize()
    begin = time.perf_counter()
    for _ in range(repeats):
        work()
    took = time.perf_counter() - begin
    cupy.cuda.Device().synchronize()
    return 1e6 * took / repeats


def main():
    import cupy
    from numba import cuda

    from triegp.engines.cuda import keys, plan
    from triegp.engines.cuda.card import THREADS

    packed = cupy.random.randint(0, 256, (1, HOUSE, 11), dtype=cupy.uint8)
    (order,) = orders(11, 1)
    found = keys.sort_batch(packed, order.key_bits[None])
    stage = plan.make_plan(found.rank, HOUSE, found.n_levels, 1).stages[0]
    n_tiles, n_levels = stage.n_tiles, found.n_levels
    none = cupy.zeros(1, np.int32)

    def results():
        return [cupy.full(size, -7, np.int32) for size in (HOUSE, HOUSE, n_tiles)]

    ours, theirs, third = results(), results(), results()
    written = cupy.RawKernel(SOURCE, "close_tiles")
    plain = cuda.jit(plan._close_tiles.function)
    ways = {
        "numba, launched by CuPy": lambda: plan._close_tiles(
            n_tiles, stage.first, found.rank, none, n_levels, *ours, ()
        ),
        "CUDA C++, launched by CuPy": lambda: written(
            (n_tiles,), (THREADS,), (stage.first, found.rank, np.int32(n_levels), *theirs)
        ),
        "numba, launched by numba": lambda: plain[n_tiles, THREADS](
            stage.first, found.rank, none, n_levels, *third, ()
        ),
    }
    rows = []
    for name, work in ways.items():
        row = {"way": name, "host_microseconds": host_microseconds(work)}
        row["card_microseconds"] = (
            1e3 * events(lambda work=work: [work() for _ in range(20)], 10) / 20
        )
        rows.append(row)
        print(row, flush=True)
    for other in (theirs, third):
        assert all(bool((a == b).all()) for a, b in zip(ours, other, strict=True))
    FOLDER.mkdir(parents=True, exist_ok=True)
    found = {"machine": card_machine(), "n": HOUSE, "rows": rows}
    (FOLDER / "compilers.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
