"""Race-coupled answers don't depend on anything but seed, prompt, documents and models.

Random worlds: decode times, delays, losses, repetitions, reordering, outages, placements, run-ahead. The answer must
be the one that a single process with both sides' distributions gives, token for token, and both sides must end up
with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from common.answer.patience import WaitLimits
from common.answer.values import SideDraft
from common.estimates.estimators import FAINT, SpeculationLimits
from common.methods.aggregate.drafts import DraftWork, PrefixTree
from common.methods.aggregate.session import Action, Session
from proto.messages import Draft
from scripts.simulation.world import Fate, Network, Outage
from tests.common.methods.aggregate.table_model import TableModel
from tests.scripts.simulation.worlds import SETTINGS, VOCABULARY, build, one_process, rough_network


def branching(run_ahead: int, rows: int) -> SpeculationLimits:
    """Branches wherever there is the faintest chance."""
    return SpeculationLimits(run_ahead, rows, FAINT, rows)


@pytest.mark.parametrize("name", SETTINGS)
class TestTokenIdentity:
    @settings(max_examples=30, phases=[Phase.explicit, Phase.reuse, Phase.generate])  # shrinking takes minutes
    @given(
        seed=st.integers(0, 2**64 - 1),
        world=st.integers(0, 2**32),
        temperature=st.sampled_from([0.0, 0.3, 1.0]),
        entries=st.sampled_from([1, 2, 4, VOCABULARY]),
        run_ahead=st.sampled_from([1, 2, 5, 12]),
        rows=st.sampled_from([1, 2, 8]),
        loss=st.sampled_from([0.0, 0.1, 0.3]),
        ordered=st.booleans(),
    )
    def test_any_network(
        self,
        name: str,
        seed: int,
        world: int,
        temperature: float,
        entries: int,
        run_ahead: int,
        rows: int,
        loss: float,
        ordered: bool,
    ) -> None:
        generator = np.random.default_rng(world)
        model = TableModel(VOCABULARY, world, disagreement=float(generator.uniform(0, 1)))
        length = int(generator.integers(1, 25))
        network = rough_network(generator, loss, repeat=0.1, ordered=ordered)
        ahead = branching(run_ahead, rows)
        simulated = build(SETTINGS[name], model, seed, temperature, entries, length, network, generator, ahead)
        assert simulated.run(until=600), "the answer never ended"
        expected = one_process(model, seed, temperature, length)
        assert list(simulated.device.session.committed) == expected
        assert not simulated.device.session.counters.disagreements
        assert not simulated.device.session.counters.degraded
        cloud = list(simulated.cloud.session.committed)
        assert cloud == expected[: len(cloud)]


class TestMutants:
    """Faults that the property above must catch."""

    def run(self, session_type: type[Session], trials: int = 20, ahead: SpeculationLimits = branching(8, 4)) -> int:  # noqa: B008
        """Number of `trials` random answers that come out wrong."""
        wrong = 0
        for world in range(trials):
            generator = np.random.default_rng(world)
            model = TableModel(VOCABULARY, world, disagreement=0.8)
            network = rough_network(generator, 0.1, 0.1, ordered=False)
            simulated = build(SETTINGS["device"], model, world, 1.0, VOCABULARY, 20, network, generator, ahead)
            for side in (simulated.device, simulated.cloud):
                side.session.__class__ = session_type
            simulated.run(until=600)
            wrong += list(simulated.device.session.committed) != one_process(model, world, 1.0, 20)
        return wrong

    def test_the_session_itself_is_right(self) -> None:
        assert self.run(Session) == 0

    def test_a_draft_of_a_rejected_prefix_is_noticed(self) -> None:
        class FencedByPositionOnly(Session):
            """Aggregates whatever was drafted for the position, as the published program does."""

            def _on_draft(self, message: Draft) -> list[Action]:
                if self.position <= message.position:
                    node = self.local.root
                    while node.position < message.position and node.draft is not None:
                        following = node.children.get(node.draft.view.token)
                        if following is None:
                            break
                        node = following
                    if node.position == message.position:
                        message = replace(message, digest=node.digest)
                return super()._on_draft(message)

        assert self.run(FencedByPositionOnly) > 5

    def test_a_draft_that_survives_its_rejected_predecessor_is_noticed(self) -> None:
        class KeepsDrafting(Session):
            """Never pre-empts a step, and counts its result for whatever position comes next."""

            epoch = property(lambda self: 0)

            @property
            def work(self) -> DraftWork | None:
                work = super().work
                return None if work is None else replace(work, epoch=0)

            def drafted(self, draft: SideDraft) -> list[Action]:
                self.local.ask(0, self._prefix.path, self.ahead)  # what it would ask for now
                end = self.local._end()
                return super().drafted(replace(draft, position=end.position, digest=end.digest))

        assert self.run(KeepsDrafting) > 5

    def test_a_branch_that_passes_for_another_is_noticed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        work = PrefixTree._work

        def confused(tree: PrefixTree, epoch: int, committed: Sequence[int]) -> DraftWork:
            found = work(tree, epoch, committed)
            return replace(found, prefixes=found.prefixes[::-1])

        monkeypatch.setattr(PrefixTree, "_work", confused)
        assert self.run(Session) > 5

    def test_a_branch_behind_the_chains_tokens_is_noticed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        work = PrefixTree._work

        def chained(tree: PrefixTree, epoch: int, committed: Sequence[int]) -> DraftWork:
            found = work(tree, epoch, committed)
            return replace(found, tokens=found.tokens[:1] * len(found.tokens))

        monkeypatch.setattr(PrefixTree, "_work", chained)
        assert self.run(Session) > 5

    def test_a_branch_that_outlives_another_target_is_noticed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        commit = PrefixTree.commit

        def adopting(tree: PrefixTree, token: int) -> bool:
            """Goes on with what was drafted behind another token where there is nothing behind this one."""
            drafts = [node.draft for node in tree.root.children.values() if node.draft is not None]
            useless = commit(tree, token)
            if tree.root.draft is None and drafts:
                tree.root.draft = replace(drafts[0], digest=tree.root.digest)
                tree._decoded[tree.root.digest] = tree.root
            return useless

        monkeypatch.setattr(PrefixTree, "commit", adopting)
        assert self.run(Session) > 5


class TestDegraded:
    def test_the_device_goes_on_alone_and_takes_the_cloud_back_in(self) -> None:
        generator = np.random.default_rng(5)
        model = TableModel(VOCABULARY, 5, end=0.0)
        network = Network(lambda sender: Fate((0.05,)), True, (Outage(1.0, 6.0),))
        ahead = branching(6, 3)
        for name in SETTINGS:
            simulated = build(
                SETTINGS[name], model, 1, 1.0, 4, 300, network, generator, ahead, limits=WaitLimits(1.0, 0.5)
            )
            for side in (simulated.device, simulated.cloud):
                side.decode_seconds = lambda position: 0.05
            assert simulated.run(until=200), name
            degraded = simulated.device.session.counters.degraded
            times = {commit.position: time for time, commit in simulated.device.commits}
            assert degraded, name
            assert all(1.0 < times[position] < 8.5 for position in degraded), name
            assert len(degraded) < 200, name
            cloud = simulated.cloud.session.committed
            assert simulated.device.session.committed[: len(cloud)] == cloud, name
            assert len(cloud) > 280, name
