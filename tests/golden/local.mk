# tests of tests/golden
