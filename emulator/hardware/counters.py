"""What a launch did, counted."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

from emulator.hardware.traffic import SECTOR, Traffic

Dim3 = tuple[int, int, int]


@dataclass
class LaunchCounters:
    """Counts of one launch; of the first schedule, where it ran under several.

    Bytes: "requested" counts every repeat, "unique" counts each touched 32-byte sector once. Loads are those of the
    async proxy (TMA tensor and bulk copies), stores are all stores to global memory.
    """

    kernel: str
    grid: Dim3
    cluster: Dim3
    schedule: str
    ctas: int = 0
    warp_instructions: int = 0
    mma: int = 0
    mma_flops: int = 0
    stored_bytes: int = 0
    tma_load_requested_bytes: int = 0
    tma_load_unique_bytes: int = 0
    per_allocation: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Loads: allocation ("name@address", or the address alone) -> (requested, unique) bytes."""

    def merge(self, other: LaunchCounters) -> None:
        """Adds the events of another part of the same launch. Loads are added by `account`, from the parts' marks."""
        for name in ("ctas", "warp_instructions", "mma", "mma_flops", "stored_bytes"):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def account(self, traffic: Traffic) -> None:
        """Adds the loads that `traffic` has seen."""
        for allocation, loads in traffic.loads.items():
            unique = int(loads.marks.sum(dtype=int)) * SECTOR
            address = f"{allocation.start:#x}"
            key = f"{allocation.name}@{address}" if allocation.name else address
            self.per_allocation[key] = (loads.requested, unique)
            self.tma_load_requested_bytes += loads.requested
            self.tma_load_unique_bytes += unique

    def as_dict(self) -> dict:
        return asdict(self)
