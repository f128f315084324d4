# sources of engine/graph, and their tests
