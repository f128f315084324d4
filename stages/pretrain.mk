# lf-pretrain: option table, main, tests
