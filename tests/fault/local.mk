# tests of tests/fault
