# The CPU backend's own tests (the operations against the reference are in CMakeLists.txt), and its bench.
tandem_test(cpu_test
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/cpu_levels_test.cc ${CMAKE_CURRENT_LIST_DIR}/cpu_memory_test.cc
          ${CMAKE_CURRENT_LIST_DIR}/cpu_products_test.cc
          ${CMAKE_CURRENT_LIST_DIR}/cpu_thread_pool_test.cc
  DEPS kernels_cpu kernels_reference
  LABELS threads)
target_compile_definitions(cpu_test PRIVATE TANDEM_KERNELS_CPU_ARCHIVE="$<TARGET_FILE:kernels_cpu>")

add_executable(cpu_ops_bench ${CMAKE_CURRENT_LIST_DIR}/../bench/cpu_ops_bench.cc)
target_link_libraries(cpu_ops_bench PRIVATE kernels_cpu)
