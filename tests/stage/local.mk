# tests of tests/stage
