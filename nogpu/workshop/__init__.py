"""Tools for developers of the emulator. Only a checkout has them; run them from its folder nogpu.

    python -m workshop.fuzz                     mutated PTX: only the emulator's own errors may come of it
    python -m workshop.foreign FOLDER           programs of others, and their results beside a B200's
    python -m workshop.calibration              a chip profile's constants, measured on the GPU at hand
    python -m workshop.calibration.profile      a chip profile from such constants
    python -m workshop.clock.ladders            modelled times of published programs beside their published times

Packages: calibration, clock, foreign, mutants (kernels with broken synchronisation, and checks that notice it). All
commands share a console and a parser (`console`), files of figures (`records`), processes (`processes`) and tables
(`tables`).
"""

from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]  # the repository's folder; docs/results has the committed figures
