"""Prometheus' text as values that tests compare, read by the library's own parser."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families


class Metrics:
    """Metrics of a daemon at one moment."""

    def __init__(self, text: str) -> None:
        families = list(text_string_to_metric_families(text))
        names = [family.name for family in families]
        assert len(names) == len(set(names)), "a family is told twice"
        self.kinds = {family.name: family.type for family in families}
        self._samples = [sample for family in families for sample in family.samples]

    def __getitem__(self, name: str) -> float:
        """The sum of all series of a sample."""
        return self.of(name)

    def of(self, name: str, **labels: str) -> float:
        """The sum of the series with these labels."""
        assert name in self.names or name.removesuffix("_total") in self.kinds, f"no {name}"
        found = [each for each in self._samples if each.name == name and labels.items() <= each.labels.items()]
        return sum(each.value for each in found)

    @property
    def names(self) -> set[str]:
        """Names as queries have them: with `_total`, `_bucket` and their like."""
        return {sample.name for sample in self._samples}

    @property
    def words(self) -> set[str]:
        """Every value of every label."""
        return {value for sample in self._samples for value in sample.labels.values()}
