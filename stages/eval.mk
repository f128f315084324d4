# lf-eval: option table, main, tests
