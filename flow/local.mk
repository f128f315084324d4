noinst_LIBRARIES += flow/libflow.a
flow_libflow_a_SOURCES =
