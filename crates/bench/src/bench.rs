//! State shared by all measurements of a run.

use std::cell::RefCell;
use std::sync::Arc;

use cutout_cpu::{Cpu, Isa};
use cutout_parallel::Pool;

use crate::ceiling;
use crate::contest::Budget;
use crate::progress::Progress;

/// Threads, budgets, and the ceilings measured so far.
pub(crate) struct Bench {
    pub(crate) threads: usize,
    pub(crate) isa: Isa,
    /// For kernels that are called directly.
    pub(crate) pool: Arc<Pool>,
    /// For kernels that are compiled from a graph; runs on `pool`.
    pub(crate) cpu: Cpu,
    pub(crate) budget: Budget,
    pub(crate) progress: Progress,
    pub(crate) ceilings: RefCell<Ceilings>,
}

/// Every sample of every ceiling in this run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ceilings {
    /// Multiply-adds on registers, GFLOP/s.
    pub(crate) multiply_add: Vec<f64>,
    /// Dot products of pairs of bf16 on registers, GFLOP/s.
    pub(crate) half_dot: Vec<f64>,
    /// Dot products of bytes on registers, 10^9 operations per second.
    pub(crate) dot: Vec<f64>,
    /// Copies between buffers larger than the caches, GB/s, bytes read and bytes written.
    pub(crate) copy: Vec<f64>,
}

impl Bench {
    pub(crate) fn new(threads: usize, budget: Budget, tasks: usize) -> Bench {
        let pool = Arc::new(Pool::new(threads));
        let cpu = Cpu::on(Arc::clone(&pool));
        Bench {
            threads,
            isa: cpu.isa(),
            pool,
            cpu,
            budget,
            progress: Progress::new(tasks),
            ceilings: RefCell::default(),
        }
    }

    pub(crate) fn multiply_add(&self) -> f64 {
        let rate = ceiling::fma_gflops(self.isa, self.threads);
        self.ceilings.borrow_mut().multiply_add.push(rate);
        rate
    }

    pub(crate) fn half_dot(&self) -> f64 {
        let rate = ceiling::half_dot_gflops(self.isa, self.threads);
        self.ceilings.borrow_mut().half_dot.push(rate);
        rate
    }

    pub(crate) fn dot(&self) -> f64 {
        let rate = ceiling::dot_gops(self.isa, self.threads);
        self.ceilings.borrow_mut().dot.push(rate);
        rate
    }

    pub(crate) fn copy(&self) -> f64 {
        let rate = ceiling::copy_bandwidth(self.threads);
        self.ceilings.borrow_mut().copy.push(rate);
        rate
    }
}
