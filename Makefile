# make eval        the contest's ten tests: on a B200 or a Hopper GPU if there is one, else in the emulator, three schedules,
#                  the first of them under the sanitizer;
#                  PROBLEM=dual_gemm, gemm, gemv or all runs another problem's tests, or all forty, CASE=3,5 two of ten
# make test        the project's own tests, the emulator's first, without those that take long; no GPU needed; SLOW=1 runs
#                  these, too, TESTS="tests/kernel ..." and NOGPU_TESTS=... some of them, empty ones none
# make affected    the tests nearest to what has changed since the last commit, or since BASE=main; FILES="submission.py" names it
# make benchmark   the benchmark shapes: timed on a GPU (a Hopper's tensor core omitted), checked and counted in the emulator
# make report      SMEM, TMEM, registers, spills and machine code of every configuration; no GPU needed
# make b200        everything that we want to know of a B200, in ten minutes: docs/first_light.md; also on a Hopper GPU, and a little
#                  of it in the emulator
# make soak        random problems through every configuration in the emulator, for SECONDS (60); SEED=2 for others
# make lint        formatting, static checks, types, import contracts, generated tables
# make check       what CI runs: lint, test, eval, benchmark and soak, also on the contest runner's nvidia-cutlass-dsl 4.5.2;
#                  31 minutes on two cores of a Xeon without AMX
# make lock        resolve the versions in tools/requirements anew
#
# Each target sets up what it needs in a virtual environment, with the versions in tools/requirements. DSL=4.5.2 takes the
# nvidia-cutlass-dsl of the contest's runner, SCHEDULES=late other schedules of the emulator for `make eval`.

PYTHON ?= python3
DSL ?= 4.8.1
VENV ?= .venv-dsl-$(DSL)
BIN := $(VENV)/bin
READY := $(VENV)/.ready
LOCK := tools/requirements/dsl-$(DSL).txt
PIP = $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint $(LOCK)
SCHEDULES ?= late,random:1,random:2
comma := ,
SANITIZED ?= $(firstword $(subst $(comma), ,$(SCHEDULES)))
SECONDS ?= 60
BASE ?= HEAD
SEED ?= 1
PROBLEM ?= group_gemm
CASE ?=
# PROBLEM@DSL, or PROBLEM@DSL@CASES, the longest first; `make eval` has the tests of group_gemm with the other DSL. Case 2 of
# dual_gemm is case 0 again, case 4 of gemv is case 3. Case 5 of dual_gemm and of gemm has about half of all products, or more.
DUAL_GEMM := 0,1,3,4,6,7,8,9
GEMV := 0,1,2,3,5,6,7,8,9
EACH := $(addsuffix @4.5.2@5,dual_gemm gemm) dual_gemm@4.5.2@$(DUAL_GEMM) dual_gemm@4.8.1@5,$(DUAL_GEMM) gemm@4.8.1 \
  gemv@4.8.1@$(GEMV) gemm@4.5.2@0,1,2,3,4,6,7,8,9 gemv@4.5.2@$(GEMV) group_gemm@4.5.2 dual_gemm@4.8.1@8 gemm@4.8.1@9
# Sanitized, these have many tiles that do what few do. With this DSL, the sanitizer follows one case of each, and
# tests/kernel/test_interleavings.py few tiles of every configuration in all orders; test_families.py shows that many tiles
# repeat them (docs/interleavings.md, Families).
PLAIN := dual_gemm@4.8.1@5,$(DUAL_GEMM) gemm@4.8.1
BENCHMARKS := $(addprefix benchmark@,dual_gemm group_gemm gemm gemv)
TESTS ?= tests
NOGPU_TESTS ?= tests
# The tests that take long are those of `make check`, and of `make test SLOW=1`.
SLOW ?=
PYTEST = $(abspath $(BIN))/python -m pytest -n auto --dist worksteal $(if $(SLOW),,-m "not slow")

# The tests whose kernels or host code nvidia-cutlass-dsl compiles.
DSL_TESTS := $(addprefix tests/kernel/test_,kernel.py problems.py gemv.py dependent_calls.py check.py) \
  tests/tools/test_plans.py tests/tools/test_variants.py
NOGPU_DSL_TESTS := $(addprefix tests/cuda/test_,runtime.py torch_device.py)

# Without compiled modules on disk every process would compile the emulator's Python files anew: one to two seconds each.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: eval set-up set-up@4.5.2 largest largest@4.5.2 eval-each $(EACH) test affected benchmark benchmark-each $(BENCHMARKS) \
  report b200 soak lint types style check lock clean

eval: $(READY)
	$(BIN)/python eval.py test --problem $(PROBLEM) $(addprefix --case ,$(subst $(comma), ,$(CASE))) --schedule $(SCHEDULES) \
	  $(if $(SANITIZED),--sanitize --sanitize-schedule $(SANITIZED))

set-up: $(READY)

set-up@4.5.2:
	@$(MAKE) --no-print-directory set-up DSL=$(subst set-up@,,$@)

# Most of what set-up has to unpack. None of it writes files of this checkout, as two pips at once must not.
largest@4.5.2:
	@$(MAKE) --no-print-directory largest DSL=$(subst largest@,,$@)

largest:
	$(PYTHON) -m venv $(VENV)
	$(PIP) torch triton nvidia-cuda-nvrtc nvidia-nvvm nvidia-cutlass-dsl==$(DSL)

# A sanitized launch runs in one process: with --jobs the problems run side by side.
eval-each: $(EACH)

$(EACH):
	@$(MAKE) --no-print-directory eval PROBLEM=$(word 1,$(subst @, ,$@)) DSL=$(word 2,$(subst @, ,$@)) SCHEDULES=late \
	  CASE=$(word 3,$(subst @, ,$@)) $(if $(filter $@,$(PLAIN)),SANITIZED=)

benchmark: $(READY)
	$(BIN)/python eval.py benchmark --problem $(PROBLEM)

benchmark-each: $(BENCHMARKS)

$(BENCHMARKS):
	@$(MAKE) --no-print-directory benchmark PROBLEM=$(subst benchmark@,,$@)

report: $(READY)
	$(BIN)/python -m tools.report

b200: $(READY)
	$(BIN)/python tools/first_light.py

test: $(READY)
	$(if $(NOGPU_TESTS),cd nogpu && $(PYTEST) $(NOGPU_TESTS))
	$(if $(TESTS),$(PYTEST) $(TESTS))

affected: $(READY)
	$(BIN)/python tests/affected.py --base $(BASE) $(FILES)

soak: $(READY)
	$(BIN)/python -m nogpu tests/soak.py --seconds $(SECONDS) --seed $(SEED)

lint: types style

types: $(READY)
	$(BIN)/mypy

style: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	cd nogpu && $(abspath $(BIN))/lint-imports
	$(BIN)/python -m tools.measurements --check
	$(BIN)/python -m tools.prose

define step
	@printf '\n== %s: make %s\n' "$$(date +%T)" '$(1)'
	@$(MAKE) --no-print-directory $(1)

endef

# Few of the modules that pip installs are ever imported: these are compiled then, by tests. A confined process, such as an
# evaluation's worker, keeps none.
check: export PIP_COMPILE := 0
# pip uses one core, and so does each part of lint.
check:
	$(call step,--jobs 2 set-up largest@4.5.2)
	$(call step,--jobs 2 --output-sync lint set-up@4.5.2)
	$(call step,test SLOW=1)
	$(call step,test SLOW=1 DSL=4.5.2 NOGPU_TESTS="$(NOGPU_DSL_TESTS)" TESTS="$(DSL_TESTS)")
	$(call step,--jobs 4 --output-sync eval-each eval benchmark-each)
	$(call step,soak)
	$(call step,soak DSL=4.5.2)

lock:
	$(PYTHON) -m venv .venv-lock
	.venv-lock/bin/python -m pip install --quiet --disable-pip-version-check uv
	for version in 4.5.2 4.8.1; do \
	  echo nvidia-cutlass-dsl==$$version | .venv-lock/bin/uv pip compile --quiet --universal --python-version 3.11 \
	    --extra dev --extra modal --extra test --constraint - --no-annotate --no-header --no-emit-index-url \
	    --no-emit-find-links pyproject.toml nogpu/pyproject.toml -o tools/requirements/dsl-$$version.txt || exit 1; done

$(READY): pyproject.toml nogpu/pyproject.toml $(LOCK)
	$(PYTHON) -m venv $(VENV)
	$(PIP) --editable './nogpu[test]' --editable '.[test]' nvidia-cutlass-dsl==$(DSL)
	touch $@

clean:
	rm -rf .venv-dsl-* .venv-lock *.egg-info
