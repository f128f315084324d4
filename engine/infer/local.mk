# sources of engine/infer, and their tests
