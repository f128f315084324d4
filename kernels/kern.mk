# Everything that is not a matrix product: sources (LF_CPU_ISA_SOURCES += ...) and tests.
