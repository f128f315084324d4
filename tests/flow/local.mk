# tests of tests/flow
