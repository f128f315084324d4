# sources of engine/comm, and their tests
