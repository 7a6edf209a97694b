"""Tools for who develops the emulator, of a checkout only: they are not installed. Run them from the folder nogpu.

    python -m workshop.fuzz                     mutated PTX: nothing but the emulator's own errors may come of it
    python -m workshop.foreign FOLDER           programs of others, beside what a B200 made of them
    python -m workshop.calibration              a chip profile's constants, measured on the GPU at hand
    python -m workshop.calibration.profile      a chip profile from such constants
    python -m workshop.clock.ladders            modelled times of published programs beside their published times

Rooms: calibration, clock, foreign, mutants (kernels with broken synchronisation, and what notices each). Every command
has one console and parser (`console`), one way to save and load figures (`records`), to run jobs (`processes`) and to
write tables (`tables`).
"""

from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]  # of the repository, whose docs/results has the committed figures
