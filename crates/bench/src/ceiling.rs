//! The machine's ceilings, measured: multiply-adds and dot products in registers, copies beyond the caches.
#![expect(
    clippy::disallowed_methods,
    reason = "one thread for each core, without the pool's scheduling"
)]

use std::hint::black_box;
use std::sync::Barrier;
use std::time::Instant;

use cutout_cpu::simd::{Isa, Kernel, Simd, dispatch, dispatch_dots};
use cutout_parallel::AlignedBuffer;

/// Measurements per call. The best one counts: disturbances only make a measurement slower.
const REPEATS: usize = 7;

/// Rate of fused multiply-adds on registers, on all threads at once: 10^9 floating-point operations per second.
pub(crate) fn fma_gflops(isa: Isa, threads: usize) -> f64 {
    let steps = 400_000;
    let seconds = best_seconds(threads, &|| {
        black_box(dispatch(isa, Chains { steps, product: Product::Float }));
    });
    let operations = 2 * steps * CHAINS * isa.or_available().lanes() * threads.max(1);
    operations as f64 / seconds / 1e9
}

/// Rate of dot products of two bf16 on registers, on all threads at once: 10^9 floating-point operations per second.
pub(crate) fn half_dot_gflops(isa: Isa, threads: usize) -> f64 {
    let steps = 400_000;
    let seconds = best_seconds(threads, &|| {
        black_box(dispatch_dots(isa, Chains { steps, product: Product::Halves }));
    });
    let operations = 4 * steps * CHAINS * isa.or_available().lanes() * threads.max(1);
    operations as f64 / seconds / 1e9
}

/// Rate of dot products of four bytes on registers, on all threads at once: 10^9 operations (a multiplication and an addition
/// per byte) per second.
pub(crate) fn dot_gops(isa: Isa, threads: usize) -> f64 {
    let steps = 200_000;
    let seconds = best_seconds(threads, &|| {
        black_box(dispatch(isa, Chains { steps, product: Product::Bytes }));
    });
    let operations = 8 * steps * CHAINS * isa.or_available().lanes() * threads.max(1);
    operations as f64 / seconds / 1e9
}

/// Rate of copies between buffers far larger than the caches, on all threads at once: 10^9 bytes per second, each byte counted
/// once as read and once as written.
pub(crate) fn copy_bandwidth(threads: usize) -> f64 {
    let elements = 16 << 20;
    let source = AlignedBuffer::<f32>::zeroed(elements);
    let share = elements / threads.max(1);
    let mut best = f64::INFINITY;
    let mut target = AlignedBuffer::<f32>::zeroed(elements);
    for _ in 0..REPEATS {
        let barrier = Barrier::new(threads.max(1));
        let slowest = std::thread::scope(|scope| {
            let pairs = source.chunks_exact(share).zip(target.chunks_exact_mut(share));
            let copies: Vec<_> = pairs
                .take(threads.max(1))
                .map(|(from, to)| scope.spawn(|| timed(&barrier, || to.copy_from_slice(from))))
                .collect();
            copies.into_iter().map(|copy| copy.join().unwrap_or(f64::INFINITY)).fold(0.0, f64::max)
        });
        best = best.min(slowest);
    }
    black_box(&target[0]);
    (2 * size_of::<f32>() * share * threads.max(1)) as f64 / best / 1e9
}

/// Least time over [`REPEATS`] in which `threads` threads run `body` once each.
fn best_seconds(threads: usize, body: &(dyn Fn() + Sync)) -> f64 {
    let barrier = Barrier::new(threads.max(1));
    let measure = || {
        body();
        (0..REPEATS).map(|_| timed(&barrier, body)).collect::<Vec<f64>>()
    };
    let times: Vec<Vec<f64>> = std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(measure)).collect();
        running.into_iter().map(|thread| thread.join().unwrap_or_default()).collect()
    });
    // The time of a repeat is that of its slowest thread.
    let repeat = |index: usize| times.iter().map(|thread| thread[index]).fold(0.0, f64::max);
    (0..REPEATS).map(repeat).fold(f64::INFINITY, f64::min)
}

/// Waits for the other threads, then times `body`.
fn timed(barrier: &Barrier, body: impl FnOnce()) -> f64 {
    barrier.wait();
    let started = Instant::now();
    body();
    started.elapsed().as_secs_f64()
}

/// Enough independent chains to hide the latency of a multiply-add, few enough for 16 registers.
const CHAINS: usize = 12;

#[derive(Clone, Copy)]
enum Product {
    Float,
    Halves,
    Bytes,
}

struct Chains {
    steps: usize,
    product: Product,
}

impl Kernel for Chains {
    type Output = f32;
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> f32 {
        match self.product {
            Product::Float => float_chains(simd, self.steps),
            Product::Halves => half_chains(simd, self.steps),
            Product::Bytes => byte_chains(simd, self.steps),
        }
    }
}

#[inline(always)]
fn float_chains<S: Simd>(simd: S, steps: usize) -> f32 {
    let (scale, shift) = (simd.splat(black_box(0.999)), simd.splat(black_box(0.001)));
    let mut chains = [simd.splat(black_box(1.0)); CHAINS];
    for _ in 0..steps {
        for chain in &mut chains {
            *chain = simd.fma(*chain, scale, shift);
        }
    }
    let mut sum = simd.splat(0.0);
    for chain in chains {
        sum = simd.add(sum, chain);
    }
    simd.reduce_sum(sum)
}

#[inline(always)]
fn half_chains<S: Simd>(simd: S, steps: usize) -> f32 {
    // Pairs of 1 and of 1/64.
    let left = simd.splat_int(black_box(0x3F80_3F80));
    let right = simd.splat_int(black_box(0x3C80_3C80));
    let mut chains = [simd.splat(black_box(0.0)); CHAINS];
    for _ in 0..steps {
        for chain in &mut chains {
            *chain = simd.dot2(*chain, left, right);
        }
    }
    let mut sum = simd.splat(0.0);
    for chain in chains {
        sum = simd.add(sum, chain);
    }
    simd.reduce_sum(sum)
}

#[inline(always)]
fn byte_chains<S: Simd>(simd: S, steps: usize) -> f32 {
    let right = simd.splat_int(black_box(0x0201_0201));
    let mut chains = [simd.splat_int(black_box(0)); CHAINS];
    for _ in 0..steps {
        for chain in &mut chains {
            // The accumulator is also an operand, so the compiler cannot hoist the product out of the loop.
            *chain = simd.dot4(*chain, *chain, right);
        }
    }
    let mut sum = simd.splat_int(0);
    for chain in chains {
        sum = simd.add_int(sum, chain);
    }
    simd.reduce_sum(simd.to_float(sum))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ceilings_are_positive_numbers() {
        for isa in Isa::available() {
            for value in [fma_gflops(isa, 1), half_dot_gflops(isa, 1), dot_gops(isa, 2)] {
                assert!(value.is_finite() && value > 0.0, "{isa:?}: {value}");
            }
        }
    }
}
