"""Counts of a launch's events."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

from nogpu.hardware.traffic import SECTOR, Traffic

Dim3 = tuple[int, int, int]


@dataclass
class LaunchCounters:
    """Counts of one launch, under the first schedule if it ran under several.

    "requested" bytes count every repeat, "unique" bytes each touched 32-byte sector once.
    """

    kernel: str  # entry name
    grid: Dim3  # CTAs
    cluster: Dim3  # CTAs
    schedule: str
    ctas: int = 0
    warp_instructions: int = 0
    mma: int = 0  # tcgen05.mma instructions
    mma_flops: int = 0  # multiplications and additions of these instructions
    stored_bytes: int = 0  # bytes requested by all stores to global memory
    tma_load_requested_bytes: int = 0  # by loads of the async proxy: tensor and bulk copies
    tma_load_unique_bytes: int = 0
    per_allocation: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Allocation ("name@address", or the address alone) -> (requested, unique) bytes of the async proxy's loads."""

    def merge(self, other: LaunchCounters) -> None:
        """Adds the events of another part of the same launch, except loads: `account` adds those, from all marks."""
        for name in ("ctas", "warp_instructions", "mma", "mma_flops", "stored_bytes"):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def account(self, traffic: Traffic) -> None:
        """Counts the loads that `traffic` has recorded."""
        self.tma_load_requested_bytes = self.tma_load_unique_bytes = 0
        for allocation, loads in traffic.loads.items():
            unique = int(loads.marks.sum(dtype=int)) * SECTOR
            address = f"{allocation.start:#x}"
            key = f"{allocation.name}@{address}" if allocation.name else address
            self.per_allocation[key] = (loads.requested, unique)
            self.tma_load_requested_bytes += loads.requested
            self.tma_load_unique_bytes += unique

    def as_dict(self) -> dict:
        """The counts by name, for JSON."""
        return asdict(self)
