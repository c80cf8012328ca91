"""Moving a mixture into the memory of another engine, between the host and a device."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from triegp.engines import CpuEngine, Engine
from triegp.mixture.members import Ensemble, Member
from triegp.tree.posterior import lend_posterior, restore
from triegp.tree.rows import move_rows
from triegp.tree.trie import link_rows


def _lend(ensemble: Ensemble, engine: Engine) -> Ensemble:
    """The same mixture, in the same memory, computed with another engine. O(1) per member."""
    members = (
        replace(
            member,
            posteriors=tuple(lend_posterior(part, engine) for part in member.posteriors),
        )
        for member in ensemble.members
    )
    return replace(ensemble, members=tuple(members))


def place_ensemble(ensemble: Ensemble, engine: Engine) -> Ensemble:
    """The same mixture in the memory of an engine; the same object if it is there already.

    A mixture whose members hold cells stays on the host.

    Tries, keys and rows are copied. Messages are computed again there, as after loading a file, so
    the result has the bits of a mixture that was conditioned there. O(n) per member; members are
    moved in parallel if the engine can.
    """
    if ensemble.on_host == engine.on_host and type(ensemble.engine) is not type(engine):
        return _lend(ensemble, engine)
    if ensemble.on_host == engine.on_host or ensemble.held is not None:
        return ensemble
    fetch = ensemble.engine.fetch
    known: dict[int, Any] = {}  # members share targets and weights

    def hold(array: Any) -> Any:
        if id(array) not in known:
            known[id(array)] = engine.hold(fetch(array))
        return known[id(array)]

    rows = [[move_rows(p.rows, hold) for p in member.posteriors] for member in ensemble.members]

    def place(alone: Engine, k: int) -> Member:
        member = ensemble.members[k]
        first = member.posteriors[0]
        old = first.trie
        row_idx, lcp, keys = (
            alone.hold(fetch(array)) for array in (old.row_idx, old.links.lcp, first.keys)
        )
        trie = link_rows(old.bits, row_idx, lcp, alone)
        free = CpuEngine() if alone.on_host else alone
        posteriors = tuple(
            lend_posterior(restore(trie, keys, p.order, p.noise, own, p.dtype), free)
            for p, own in zip(member.posteriors, rows[k], strict=True)
        )
        return replace(member, posteriors=posteriors)

    members = engine.each(place, range(len(ensemble.members)))
    return replace(ensemble, members=tuple(members))
