// Barriers in shared memory: a phase ends when as many have arrived as the barrier was made for.
#pragma once
#include "common.cuh"

typedef unsigned long long u64;

__device__ __forceinline__ void init_barrier(u64& barrier, int count) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(&barrier)), "r"(count) : "memory");
}

__device__ __forceinline__ void arrive(u64& barrier) {
    [[maybe_unused]] u64 state;
    asm volatile("mbarrier.arrive.shared.b64 %0, [%1];" : "=l"(state) : "r"(shared_address(&barrier)) : "memory");
}

// Arrives once the copies that this thread has started are done.
__device__ __forceinline__ void arrive_when_copied(u64& barrier) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(shared_address(&barrier)) : "memory");
}

#if __CUDA_ARCH__ >= 900
// Arrives; the phase then also waits for this many bytes of copies.
__device__ __forceinline__ void arrive_and_expect(u64& barrier, int bytes) {
    [[maybe_unused]] u64 state;
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 %0, [%1], %2;"
                 : "=l"(state)
                 : "r"(shared_address(&barrier)), "r"(bytes)
                 : "memory");
}

// Starts a copy of a multiple of 16 bytes, which the barrier counts.
__device__ __forceinline__ void copy_all(void* to, const void* from, int bytes, u64& barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
            shared_address(to)),
        "l"(from), "r"(bytes), "r"(shared_address(&barrier))
        : "memory");
}
// Two blocks of a cluster: the address of a variable of this block in the memory of block `block`.
__device__ __forceinline__ u32 address_in(const void* here, int block) {
    u32 there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(shared_address(here)), "r"(block));
    return there;
}

// Stores 16 bytes in another block's memory, which the barrier there counts.
__device__ __forceinline__ void send_16(u32 to, const float (&values)[4], u32 barrier) {
    asm volatile(
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(to),
        "r"(__float_as_uint(values[0])), "r"(__float_as_uint(values[1])), "r"(__float_as_uint(values[2])),
        "r"(__float_as_uint(values[3])), "r"(barrier)
        : "memory");
}

// Arrives at another block's barrier, once this block's reads before it are done.
__device__ __forceinline__ void arrive_there(u32 barrier) {
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Waits until the phase of this parity is over, to which another block contributes.
__device__ __forceinline__ void await_others(u64& barrier, int parity) {
    u32 over;
    do {
        asm volatile(
            "{.reg .pred p; mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
            : "=r"(over)
            : "r"(shared_address(&barrier)), "r"(parity)
            : "memory");
    } while (!over);
}

// Says that this block's barriers are there, and waits until the other blocks' are.
__device__ __forceinline__ void cluster_arrive() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
#endif

// Waits until the phase of this parity is over.
__device__ __forceinline__ void await(u64& barrier, int parity) {
    u32 over;
    do {
#if __CUDA_ARCH__ >= 900
        asm volatile(
            "{.reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
            : "=r"(over)
            : "r"(shared_address(&barrier)), "r"(parity)
            : "memory");
#else
        asm volatile(
            "{.reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
            : "=r"(over)
            : "r"(shared_address(&barrier)), "r"(parity)
            : "memory");
#endif
    } while (!over);
}
