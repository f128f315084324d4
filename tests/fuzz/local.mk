# tests of tests/fuzz
