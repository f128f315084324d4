# sources of engine/train, and their tests
