# make eval   the contest's ten tests, on the B200 where there is one, else in the emulator under three schedules;
#             PROBLEM=dual_gemm, gemm, gemv or all: those of another problem, or of all
# make test   the project's own tests; need no GPU; TESTS="tests/test_kernel.py ..." some of them
# make benchmark   the four benchmark shapes: timed on a B200, checked and counted in the emulator
# make report   static figures of every configuration: SMEM, TMEM, registers, spills, machine code; needs no GPU
# make soak   random shapes through every configuration in the emulator, for SECONDS (60)
# make lint   formatting and static checks
#
# Each sets up what it needs in a virtual environment. DSL=4.5.2 takes the nvidia-cutlass-dsl of the contest's runner,
# SCHEDULES=late other schedules of the emulator for `make eval`.

PYTHON ?= python3
DSL ?= 4.8.1
VENV ?= .venv-dsl-$(DSL)
BIN := $(VENV)/bin
READY := $(VENV)/.ready
SCHEDULES ?= late,random:1,random:2
SECONDS ?= 60
PROBLEM ?= group_gemm
TESTS ?= tests

.PHONY: eval test benchmark report soak lint clean

eval: $(READY)
	$(BIN)/python eval.py test --problem $(PROBLEM) --schedule $(SCHEDULES)

benchmark: $(READY)
	$(BIN)/python eval.py benchmark --problem $(PROBLEM)

report: $(READY)
	$(BIN)/python -m tools.report

test: $(READY)
	$(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder $(TESTS)

soak: $(READY)
	$(BIN)/python -m emulator --schedule eager,late,random:1 tests/soak.py --seconds $(SECONDS)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test]' nvidia-cutlass-dsl==$(DSL)
	touch $@

clean:
	rm -rf .venv-dsl-* *.egg-info
