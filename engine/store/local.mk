# sources of engine/store, and their tests
