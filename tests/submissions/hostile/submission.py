"""The submission of the kinds in HOSTILE; of several kinds M of a case's first group selects one."""

import os

from tests.submissions.hostile import kit, register

names = os.environ["HOSTILE"].split(",")
kinds = [register.KINDS[name] for name in names]
for chosen in kinds:
    if chosen.at_import:
        chosen.act()


def custom_kernel(data):
    kit.undo()
    chosen = kinds[data[3][0][0] - kit.FIRST_M] if len(kinds) > 1 else kinds[0]
    return kit.answer(chosen, data)
