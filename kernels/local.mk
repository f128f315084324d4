noinst_LIBRARIES += kernels/libkernels.a
kernels_libkernels_a_SOURCES =
