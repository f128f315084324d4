# sources of engine/back, and their tests
