# Matrix products, column sums, fused output layer: sources and tests.
EXTRA_DIST += kernels/README.md
