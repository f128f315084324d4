# tests of tests/bench
