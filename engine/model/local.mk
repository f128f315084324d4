# sources of engine/model, and their tests
