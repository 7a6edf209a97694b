// One of ThunderKittens' educational GEMMs for B200 at an N that a CPU can do: PROGRAM.out N. The level's own main takes
// 4096; its run_benchmark, which compares with the reference kernel of kernels/gemm/common.cuh, is called as it is.
//
//     python tools/nvcc_run.py late -I CHECKOUT/include -DKITTENS_BLACKWELL '-DLEVEL="PATH/level_06.cu"' ... tools/kittens.cu -- 256
#define main main_of_4096
#include LEVEL
#undef main

#include <cstdlib>

int main(int count, char** arguments) {
    if (count != 2) {
        std::cerr << "usage: " << arguments[0] << " N\n";
        return 2;
    }
    return run_benchmark(std::strtoul(arguments[1], nullptr, 10)) ? 1 : 0;
}
