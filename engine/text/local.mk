# sources of engine/text, and their tests
