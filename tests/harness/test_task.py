"""The spec grammar and the table of problems."""

import math
import string

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from task import DUAL_GEMM, GEMM, GEMV, GROUP_GEMM, LARGEST_FILE, PROBLEMS, SEEDS, SIZES, SpecError, TestSpec

keys = st.text(f"{string.ascii_letters}_", min_size=1, max_size=8)
values = st.integers() | keys | st.lists(st.integers()).map(tuple)


@settings(suppress_health_check=[HealthCheck.too_slow])  # tolerates a busy machine
@given(st.dictionaries(keys, values, min_size=1))
def test_a_written_line_reads_back(args):
    spec = TestSpec.from_args(args)
    assert TestSpec.parse(spec.line).args == args


@pytest.mark.parametrize(
    ("line", "args"),
    [
        ("m: 128", {"m": 128}),
        ("  m :-3 ;n:+4", {"m": -3, "n": 4}),
        ("m: [1, 2]; n: (3,4); k: [ 5 ]", {"m": (1, 2), "n": (3, 4), "k": (5,)}),
        ("m: []; n: ( )", {"m": (), "n": ()}),
        ("mode: silu_and_mul; seed: 1", {"mode": "silu_and_mul", "seed": 1}),
    ],
)
def test_parses_integers_words_and_lists(line, args):
    spec = TestSpec.parse(line)
    assert (spec.args, spec.line) == (args, line)


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("", "'' is not 'key: value'"),
        ("m: 1;", "'' is not"),
        ("m", "'m' is not"),
        ("m: 1.5", "'m: 1.5' is not"),
        ("m2: 1", "'m2: 1' is not"),
        ("m: [1, 2", "'m: [1, 2' is not"),
        ("m: 1 2", "'m: 1 2' is not"),
        ("m: [1, x]", "'x' in list '[1, x]' is not an integer"),
        ("m: [1, 2,]", "'' in list '[1, 2,]' is not an integer"),
        ("m: 1; m: 2", "key 'm' appears twice"),
    ],
)
def test_names_the_malformed_part(line, part):
    with pytest.raises(SpecError) as error:
        TestSpec.parse(line)
    assert f"'{line}'" in str(error.value)
    assert part in str(error.value)


def test_seeds_combine_as_the_contest_combines_them():
    spec = TestSpec.parse("m: 1; seed: 1111").combine_seed(77)
    assert spec.args == {"m": 1, "seed": 1111 + (1188 * 1189) // 2}
    assert spec.line == "m: 1; seed: 1111"
    unseeded = TestSpec.parse("m: 1")
    assert unseeded.combine_seed(77) == unseeded
    (spec,) = GEMM.parse_specs(["m: 8; n: 8; k: 64; l: 1; seed: 1"])
    assert spec.combine_seed(2**31).args["seed"] in SEEDS
    with pytest.raises(SpecError, match="the combined seed is 5000000000000000000000"):
        spec.combine_seed(10**23)


def test_a_problem_refuses_other_parameters():
    with pytest.raises(SpecError, match="group_gemm takes m, n, k, g, seed; got m, n, k, l, seed"):
        GROUP_GEMM.parse_specs(["m: 1; n: 1; k: 64; l: 1; seed: 1"])
    with pytest.raises(SpecError, match="gemv takes m, k, l, seed; got m, n, k, l, seed"):
        GEMV.parse_specs(["m: 1; n: 1; k: 64; l: 1; seed: 1"])
    with pytest.raises(SpecError, match="no test cases"):
        GROUP_GEMM.parse_specs([])


def test_spec_files(tmp_path):
    path = tmp_path / "specs.txt"
    path.write_text("\n".join(GROUP_GEMM.tests) + "\n")
    assert GROUP_GEMM.read_spec_file(path) == GROUP_GEMM.parse_specs(GROUP_GEMM.tests)

    for content in (b"", b"\xff: 1", GROUP_GEMM.tests[0].encode() + b"\n\n"):
        path.write_bytes(content)
        with pytest.raises(SpecError, match=r"specs\.txt"):
            GROUP_GEMM.read_spec_file(path)
    with pytest.raises(SpecError, match="line 2 is empty"):
        GROUP_GEMM.read_spec_file(path)
    with pytest.raises(SpecError, match="could not read"):
        GROUP_GEMM.read_spec_file(tmp_path / "absent")


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
def test_every_line_of_the_table_reads(problem):
    assert len(problem.parse_specs(problem.tests)) == 10
    for benchmark in problem.benchmarks:
        (spec,) = problem.parse_specs([benchmark.line])
        assert problem.find_benchmark(spec.combine_seed(5)) is benchmark
        assert benchmark.speed_of_light_us < benchmark.best_published_us
    assert problem.find_benchmark(TestSpec.parse(problem.tests[0])) is None


def test_group_gemm_lines():
    specs = GROUP_GEMM.parse_specs([*GROUP_GEMM.tests, *(benchmark.line for benchmark in GROUP_GEMM.benchmarks)])
    for spec in specs:
        assert len(spec.args["m"]) == len(spec.args["n"]) == len(spec.args["k"]) == spec.args["g"]
        assert spec.args["seed"] == 1111


@pytest.mark.parametrize("problem", [DUAL_GEMM, GEMM, GEMV], ids=lambda problem: problem.name)
def test_the_other_problems_lines_have_integers(problem):
    for spec in problem.parse_specs([*problem.tests, *(benchmark.line for benchmark in problem.benchmarks)]):
        assert all(isinstance(value, int) for value in spec.args.values())
        assert spec.args["seed"] == 1111
        assert spec.args["k"] % 64 == spec.args["m"] % 128 == spec.args.get("n", 0) % 128 == 0


@pytest.mark.parametrize(
    ("name", "cases", "inputs", "light", "published"),
    [
        ("group_gemm", 4, 15, 5.21, 13.09),
        ("dual_gemm", 4, 50, 4.89, 13.12),
        ("gemm", 3, 50, 3.04, 9.98),
        ("gemv", 3, 1, 8.63, 18.55),
    ],
)
def test_the_figures_to_beat(name, cases, inputs, light, published):
    """The geometric mean over the cases is the stated one for the speed of light.

    For the best published times it is slightly below the best of a single submission.
    """

    def geomean(values):
        return math.prod(values) ** (1 / len(values))

    problem = PROBLEMS[name]
    assert problem.leaderboard == f"nvfp4_{name}"
    assert (problem.name, len(problem.benchmarks), problem.inputs_per_timing) == (name, cases, inputs)
    assert geomean([entry.speed_of_light_us for entry in problem.benchmarks]) == pytest.approx(light, abs=0.006)
    assert problem.best_geomean_us == published
    best_of_several_submissions = geomean([entry.best_published_us for entry in problem.benchmarks])
    assert 0.96 * published < best_of_several_submissions < published + 0.01


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("m: [-8]; n: [8]; k: [64]; g: 1; seed: 1", "a size of m is -8; expected an integer from 0 to 2147483647"),
        ("m: [8]; n: [8]; k: [100000000000000000000]; g: 1; seed: 1", "a size of k is 100000000000000000000; expected"),
        ("m: [8]; n: [8]; k: [64]; g: 2; seed: 1", "m is [8]; expected a list of g = 2 sizes"),
        ("m: [8, 8]; n: [8]; k: [64, 64]; g: 2; seed: 1", "n is [8]; expected a list of g = 2 sizes"),
        ("m: 8; n: [8]; k: [64]; g: 1; seed: 1", "m is 8; expected a list of g = 1 sizes"),
        ("m: [8]; n: [8]; k: [64]; g: one; seed: 1", "m is [8]; expected a list of g = one sizes"),
        ("m: []; n: []; k: []; g: -1; seed: 1", "m is []; expected a list of g = -1 sizes"),
        (
            f"m: [8]; n: [8]; k: [64]; g: 1; seed: {10**23}",
            "seed is 100000000000000000000000; expected an integer from",
        ),
        ("m: [8]; n: [8]; k: [64]; g: 1; seed: [1]", "seed is [1]; expected an integer from -9223372036854775808"),
        (f"m: [8]; n: [8]; k: [64]; g: 1; seed: {'9' * 5000}", "...': an integer has 5000 digits"),
        (f"m: [{'9' * 5000}]; n: [8]; k: [64]; g: 1; seed: 1", "...': an integer has 5000 digits"),
    ],
)
def test_values_that_are_not_legal(line, part):
    with pytest.raises(SpecError) as error:
        GROUP_GEMM.parse_specs([line])
    assert part in str(error.value) and len(str(error.value)) < 1000


@pytest.mark.parametrize("value", ["-1", str(2**31), "[128]", "many"])
@pytest.mark.parametrize("problem", [DUAL_GEMM, GEMM, GEMV], ids=lambda problem: problem.name)
def test_values_that_are_not_legal_without_groups(problem, value):
    for name in set(problem.parameters) - {"seed"}:
        args = TestSpec.parse(problem.tests[0]).args
        line = TestSpec.from_args({**args, name: value}).line
        with pytest.raises(SpecError, match=rf"{name} is .*; expected an integer from 0 to 2147483647"):
            problem.parse_specs([line])


words = st.sampled_from(["m", "n", "k", "g", "l", "seed", ":", ";", "[", "]", "(", ",", "-", "+", " ", "\n", "\0", "é"])
numbers = st.integers(0, 2) | st.sampled_from([-1, -(10**20), 2**31, 2**63, 2**64, 10**23])
anything = numbers | st.lists(numbers, max_size=2).map(tuple) | st.just("word")
noise = st.lists(words | numbers.map(str) | st.text(max_size=3)).map("".join)


@st.composite
def lines(draw, problem):
    """Noise, or a line with the problem's parameters, some with illegal values."""
    if draw(st.booleans()):
        return draw(noise)
    of_groups = problem is GROUP_GEMM
    groups = draw(st.integers(0, 2))
    args = {name: (8,) * groups if of_groups and name in "mnk" else groups for name in problem.parameters}
    for name in draw(st.sets(st.sampled_from(problem.parameters), max_size=2)):
        args[name] = draw(anything)
    return TestSpec.from_args(args).line


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, derandomize=True)
@given(st.data(), st.sampled_from(list(PROBLEMS.values())))
def test_a_line_is_legal_or_refused(data, problem):
    try:
        (spec,) = problem.parse_specs([data.draw(lines(problem))])
    except SpecError:
        return
    assert tuple(sorted(spec.args)) == tuple(sorted(problem.parameters)) and spec.args["seed"] in SEEDS
    sizes = [spec.args[name] for name in spec.args if name != "seed"]
    for value in sizes:
        assert all(
            isinstance(size, int) and size in SIZES for size in (value if isinstance(value, tuple) else (value,))
        )
    if problem is GROUP_GEMM:
        assert {len(spec.args[name]) for name in "mnk"} == {spec.args["g"]}


@settings(suppress_health_check=list(HealthCheck), deadline=None, derandomize=True)
@given(st.binary() | st.lists(lines(GROUP_GEMM)).map("\n".join).map(str.encode))
def test_a_file_is_legal_or_refused(tmp_path, content):
    (tmp_path / "specs.txt").write_bytes(content)
    try:
        assert GROUP_GEMM.read_spec_file(tmp_path / "specs.txt")
    except SpecError as error:
        assert str(tmp_path) in str(error)


@pytest.mark.parametrize("path", ["/dev/zero", "/", "/dev/null", "/nowhere/specs.txt"])
def test_files_that_hold_no_specs(path):
    with pytest.raises(SpecError, match=rf"spec file '{path}'( has more than {LARGEST_FILE} bytes|: )|no test cases"):
        GROUP_GEMM.read_spec_file(path)
