# tests of tests/lint
