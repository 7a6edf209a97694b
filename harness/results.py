"""Holds the outcome of a case for the reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from harness.interpreter import escaped
from harness.timing import Stats


@dataclass(frozen=True)
class Result:
    """The outcome of one case. Fields that the case's job does not fill are None."""

    passed: bool
    message: str = ""
    traceback: str = ""
    stats: Stats | None = None
    baseline: Stats | None = None  # time of torch's own kernels on the same inputs
    plain_read: Stats | None = None  # time to read the case's bytes; only with tensor-core work omitted
    counts: dict[str, Any] | None = None  # counts that harness.counts shows
    clock: dict[str, Any] | None = None  # modelled times that harness.clocks shows
    report: str | None = None  # text of mode profile
    plans: Plans | None = None  # result of `--plans all`

    def cleaned(self) -> Result:
        """A copy with unprintable characters escaped, because a submission's texts reach terminals and protocols."""
        return replace(
            self,
            message=clean(self.message),
            traceback=clean(self.traceback),
            counts=clean(self.counts),
            clock=clean(self.clock),
            report=clean(self.report),
            plans=self.plans and self.plans.cleaned(),
        )


@dataclass(frozen=True)
class Plans:
    """The plans that can be forced on a case. ends: outcome of each plan that ran."""

    names: tuple[str, ...]
    chosen: str  # "" if launches choose differently
    ends: Mapping[str, Result] = field(default_factory=dict)

    def cleaned(self) -> Plans:
        """A copy with unprintable characters escaped."""
        ends = {clean(name): end.cleaned() for name, end in self.ends.items()}
        return Plans(tuple(map(clean, self.names)), clean(self.chosen), ends)


def clean(value: Any) -> Any:
    """A copy of nested dicts, lists and tuples of texts and figures, with unprintable characters escaped."""
    if isinstance(value, str):
        return escaped(value, kept="\n\t")
    if isinstance(value, dict):
        return {clean(key): clean(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(map(clean, value))
    return value
