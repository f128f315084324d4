# sources of engine/graph, and their tests
engine_libengine_a_SOURCES += engine/graph/pstore.h engine/graph/graph.h engine/graph/plan.h engine/graph/exec.h
