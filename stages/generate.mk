# lf-generate: option table, main, tests
