"""The outcome of a case, as it crosses from the worker process to the reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from harness.timing import Stats


@dataclass(frozen=True)
class Result:
    """The outcome of one case. A field that the case's job does not fill is None."""

    passed: bool
    message: str = ""
    traceback: str = ""
    stats: Stats | None = None
    baseline: Stats | None = None  # torch's own kernels on the same inputs
    plain_read: Stats | None = None  # a read of the bytes that the case must move; with tensor-core work omitted
    counts: dict[str, Any] | None = None  # made by cases.count_case, shown by harness.counts
    clock: dict[str, Any] | None = None  # modelled times, shown by harness.clocks
    report: str | None = None  # text of the profile mode
    plans: Plans | None = None  # of `--plans all`

    def cleaned(self) -> Result:
        """The same with control characters as escape sequences: texts of a submission reach terminals and protocols."""
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
    """The plans that can be forced on a case. ends: outcome of each, where it ran."""

    names: tuple[str, ...]
    chosen: str  # "" where there is no one choice
    ends: Mapping[str, Result] = field(default_factory=dict)

    def cleaned(self) -> Plans:
        """As of Result."""
        ends = {clean(name): end.cleaned() for name, end in self.ends.items()}
        return Plans(tuple(map(clean, self.names)), clean(self.chosen), ends)


def clean(value: Any) -> Any:
    """Nested dicts, lists and tuples of texts and figures, with each text's unprintable characters escaped."""
    if isinstance(value, str):
        kept = "\n\t"
        return "".join(c if c.isprintable() or c in kept else ascii(c)[1:-1] for c in value)
    if isinstance(value, dict):
        return {clean(key): clean(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(map(clean, value))
    return value
