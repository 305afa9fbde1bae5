// Helpers for Hopper (sm_90a): mbarrier, TMA, wgmma fences, clusters, packing. No CUDA header is needed.
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
struct alignas(64) TensorMap { u64 opaque[16]; };
#define D __device__ __forceinline__
#define UNROLL _Pragma("unroll")

D u32 smem(const void* p) {
  u32 a;
  asm("{.reg .u64 t; cvta.to.shared.u64 t,%1; cvt.u32.u64 %0,t;}" : "=r"(a) : "l"(p));
  return a;
}

// --- mbarrier -----------------------------------------------------------------------------------------------------
D void mbar_init(u32 b, u32 n) { asm volatile("mbarrier.init.shared::cta.b64 [%0],%1;" ::"r"(b), "r"(n)); }
D void mbar_fence() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
D void mbar_expect(u32 b, u32 n) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _,[%0],%1;" ::"r"(b), "r"(n) : "memory");
}
D void mbar_arrive(u32 b) { asm volatile("mbarrier.arrive.shared::cta.b64 _,[%0];" ::"r"(b) : "memory"); }
// Arrives on the barrier at the same offset in another block of the cluster. (`.release.cluster` would cost a MEMBAR.ALL.GPU.)
D void mbar_arrive_at(u32 b, u32 cta) {
  asm volatile("{.reg .b32 r; mapa.shared::cluster.u32 r,%0,%1; mbarrier.arrive.shared::cluster.b64 _,[r];}" ::"r"(b), "r"(cta) : "memory");
}
D void mbar_wait(u32 b, u32 phase) {
  asm volatile("{.reg .pred p; L: mbarrier.try_wait.parity.shared::cta.b64 p,[%0],%1; @p bra E; bra L; E:}" ::"r"(b), "r"(phase) : "memory");
}

// --- TMA ----------------------------------------------------------------------------------------------------------
#define TMA_LOAD(dims, multicast) "cp.async.bulk.tensor." dims ".shared::cluster.global.tile.mbarrier::complete_tx::bytes" multicast
D void tma_load2(u32 dst, const TensorMap* m, u32 bar, int x, int y) {
  asm volatile(TMA_LOAD("2d", "") " [%0],[%1,{%3,%4}],[%2];" ::"r"(dst), "l"(m), "r"(bar), "r"(x), "r"(y) : "memory");
}
D void tma_load2_multicast(u32 dst, const TensorMap* m, u32 bar, int x, int y, u16 mask) {
  asm volatile(TMA_LOAD("2d", ".multicast::cluster") " [%0],[%1,{%3,%4}],[%2],%5;" ::"r"(dst), "l"(m), "r"(bar), "r"(x), "r"(y), "h"(mask) : "memory");
}
D void tma_load4(u32 dst, const TensorMap* m, u32 bar, int c, int x, int y, int b) {
  asm volatile(TMA_LOAD("4d", "") " [%0],[%1,{%3,%4,%5,%6}],[%2];" ::"r"(dst), "l"(m), "r"(bar), "r"(c), "r"(x), "r"(y), "r"(b) : "memory");
}
#define TMA_STORE(dims) "cp.async.bulk.tensor." dims ".global.shared::cta.bulk_group"
D void tma_store2(const TensorMap* m, u32 src, int x, int y) {
  asm volatile(TMA_STORE("2d") " [%0,{%2,%3}],[%1];" ::"l"(m), "r"(src), "r"(x), "r"(y) : "memory");
}
D void tma_store4(const TensorMap* m, u32 src, int c, int x, int y, int b) {
  asm volatile(TMA_STORE("4d") " [%0,{%2,%3,%4,%5}],[%1];" ::"l"(m), "r"(src), "r"(c), "r"(x), "r"(y), "r"(b) : "memory");
}
D void tma_store5(const TensorMap* m, u32 src, int c, int dx, int x, int dy, int y) {
  asm volatile(TMA_STORE("5d") " [%0,{%2,%3,%4,%5,%6}],[%1];" ::"l"(m), "r"(src), "r"(c), "r"(dx), "r"(x), "r"(dy), "r"(y) : "memory");
}
D void tma_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
template <int N> D void tma_wait_read() { asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory"); }
template <int N> D void tma_wait() { asm volatile("cp.async.bulk.wait_group %0;" ::"n"(N) : "memory"); }
// After ordinary stores to shared memory that TMA or wgmma read.
D void fence_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// --- wgmma --------------------------------------------------------------------------------------------------------
// Descriptor of a tile in 128-byte swizzle: rows of 128 bytes, groups of 8 rows 1024 bytes apart. `lead` matters only for N-major
// operands wider than 64 elements: the distance in bytes between their blocks of 64 columns.
D u64 desc(u32 a, u32 lead = 16) {
  return (u64)((a & 0x3FFFF) >> 4) | (u64)(lead >> 4) << 16 | (u64)(1024 >> 4) << 32 | (u64)1 << 62;
}
// The same in 64-byte and in 32-byte swizzle: rows of 64 or 32 bytes, groups of 8 rows next to each other.
D u64 desc64(u32 a) { return (u64)((a & 0x3FFFF) >> 4) | (u64)1 << 16 | (u64)(512 >> 4) << 32 | (u64)2 << 62; }
D u64 desc32(u32 a) { return (u64)((a & 0x3FFFF) >> 4) | (u64)1 << 16 | (u64)(256 >> 4) << 32 | (u64)3 << 62; }
template <int BYTES> D u64 desc_of(u32 a) { return BYTES == 128 ? desc(a) : BYTES == 64 ? desc64(a) : desc32(a); }
// Bytes of the 16-byte piece `c` of row `r` in a tile whose rows are BYTES long, in the swizzle of that width.
template <int BYTES> D u32 swizzled(u32 r, u32 c) {
  return r * BYTES + ((c ^ (BYTES == 128 ? r & 7 : BYTES == 64 ? (r >> 1) & 3 : (r >> 2) & 1)) << 4);
}
D void store16(u32 at, uint4 v) {
  asm volatile("st.shared.v4.b32 [%0],{%1,%2,%3,%4};" ::"r"(at), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}
// A descriptor moved on by `bytes`.
D u64 moved(u64 d, u32 bytes) { return d + (bytes >> 4); }
D void wg_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
D void wg_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N> D void wg_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory"); }
template <int N> D void regs_inc() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N)); }
template <int N> D void regs_dec() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N)); }
// Pins an accumulator: keeps the compiler from moving its definition or use between the products (C7515: serialised wgmma).
D void hold(float& v) { asm volatile("" : "+f"(v)::"memory"); }
D void hold(int& v) { asm volatile("" : "+r"(v)::"memory"); }
template <typename T, int N> D void hold_all(T (&v)[N]) { UNROLL for (int i = 0; i < N; i++) hold(v[i]); }

// --- blocks, clusters, dependent launches -------------------------------------------------------------------------
D void bar_sync(int id, int n) { asm volatile("bar.sync %0,%1;" ::"r"(id), "r"(n) : "memory"); }
D void bar_arrive(int id, int n) { asm volatile("bar.arrive %0,%1;" ::"r"(id), "r"(n) : "memory"); }
D u32 cta_rank() { u32 r; asm volatile("mov.u32 %0,%%cluster_ctarank;" : "=r"(r)); return r; }
D void cluster_sync() { asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory"); }
D void pdl_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
D void pdl_launch() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

// --- numbers ------------------------------------------------------------------------------------------------------
constexpr float LOG2E = 1.44269504f;
constexpr float LOWEST = -1e30f;  // a score that no key reaches
D float ex2(float x) { float y; asm("ex2.approx.ftz.f32 %0,%1;" : "=f"(y) : "f"(x)); return y; }
#ifdef HALF_BF16
D u32 pack(float a, float b) { u32 r; asm("cvt.rn.bf16x2.f32 %0,%2,%1;" : "=r"(r) : "f"(a), "f"(b)); return r; }
D float lo(u32 v) { return __uint_as_float(v << 16); }
D float hi(u32 v) { return __uint_as_float(v & 0xffff0000u); }
constexpr u32 ONE = 0x3F80;
#else
D u32 pack(float a, float b) { u32 r; asm("cvt.rn.satfinite.f16x2.f32 %0,%2,%1;" : "=r"(r) : "f"(a), "f"(b)); return r; }
D float lo(u32 v) { float r; asm("{.reg .b16 l,h; mov.b32 {l,h},%1; cvt.f32.f16 %0,l;}" : "=f"(r) : "r"(v)); return r; }
D float hi(u32 v) { float r; asm("{.reg .b16 l,h; mov.b32 {l,h},%1; cvt.f32.f16 %0,h;}" : "=f"(r) : "r"(v)); return r; }
constexpr u32 ONE = 0x3C00;
#endif
D void stmatrix4(u32 a, u32 x, u32 y, u32 z, u32 w) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0],{%1,%2,%3,%4};" ::"r"(a), "r"(x), "r"(y), "r"(z), "r"(w) : "memory");
}
D void stmatrix4_trans(u32 a, u32 x, u32 y, u32 z, u32 w) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0],{%1,%2,%3,%4};" ::"r"(a), "r"(x), "r"(y), "r"(z), "r"(w) : "memory");
}
// Largest and sum over the 4 lanes that share a row of an accumulator.
D float quad_max(float x) { x = fmaxf(x, __shfl_xor_sync(~0u, x, 1)); return fmaxf(x, __shfl_xor_sync(~0u, x, 2)); }
D float quad_sum(float x) { x += __shfl_xor_sync(~0u, x, 1); return x + __shfl_xor_sync(~0u, x, 2); }

// GELU by the tanh unit: erf(x/√2) ≈ tanh(x·(a + b·x² + c·x⁴)), at most 3e-5 from the fit plus 5e-4 relative from tanh.approx: below
// the rounding of a half-precision result. 8 instructions.
D float gelu(float x) {
  float u = fminf(x * x, 40.f), t = x * fmaf(fmaf(-0.000358867f, u, 0.0370510f), u, 0.797458f), h = 0.5f * x;
  asm("tanh.approx.f32 %0,%0;" : "+f"(t));
  return fmaf(h, t, h);
}
