"""Kernels with holes, filled in two ways: with what breaks a rule, and with what keeps it."""


def twin(rule, body, options=None, **holes):
    """A row of a table: (rule, options of the launch, body that breaks the rule, body that keeps it).

    holes: what stands in the places {name} of the body: one text, or that of the broken and that of the legal body.
    """
    sides = ({name: hole[side] if isinstance(hole, tuple) else hole for name, hole in holes.items()} for side in (0, 1))
    return rule, options or {}, *(body.format(**side) for side in sides)
