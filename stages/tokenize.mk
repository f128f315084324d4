# lf-tokenize: option table, main, tests
