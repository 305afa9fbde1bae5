//! Mutated inputs for everything that is read: one [`Target`] for each reader.
//!
//! A target has valid inputs ([`Target::seeds`]) and a function that reads an input ([`Target::read`]). [`run`] mutates the
//! seeds and reads the results. The property is the same everywhere: no panic, and no more memory than the target's bound.
//! Input number `i` of a seed is the same on every machine, so a failure is found again by its number.

mod allocator;
mod mutate;
mod targets;

use std::panic::{AssertUnwindSafe, catch_unwind};

use cutout_testing::Random;

pub use allocator::{CountingAllocator, peak};
pub use mutate::mutated;
pub use targets::{TARGETS, Target, gguf, jpeg, safetensors, torch_pickle, torch_zip};

/// Which inputs are read.
#[derive(Clone, Copy, Debug)]
pub struct Range {
    /// Seed of all inputs.
    pub seed: u64,
    /// Number of the first.
    pub first: u64,
    /// How many.
    pub inputs: u64,
}

/// What came of a run without failures.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    /// Inputs that were read without an error.
    pub accepted: u64,
    /// Inputs that were refused.
    pub refused: u64,
    /// Most memory that one input took, in bytes.
    pub peak: usize,
}

/// An input that panicked or took too much memory.
#[derive(Debug)]
pub struct Failure {
    /// Its number.
    pub number: u64,
    /// The input itself.
    pub input: Vec<u8>,
    /// What happened.
    pub reason: String,
}

/// Bytes of memory that each byte of an input may take, beyond the target's bound.
const BYTES_PER_BYTE: usize = 64;

/// Reads mutated inputs of a target until one fails.
pub fn run(target: &Target, range: Range) -> Result<Outcome, Failure> {
    let seeds = (target.seeds)();
    let mut outcome = Outcome::default();
    for number in range.first..range.first.saturating_add(range.inputs) {
        let mut random = Random::new(range.seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let input = mutated(&seeds, target.words, &mut random);
        let (result, used) =
            peak(|| catch_unwind(AssertUnwindSafe(|| (target.read)(&input))).map_err(message));
        outcome.peak = outcome.peak.max(used);
        match result {
            Err(reason) => return Err(Failure { number, input, reason }),
            Ok(true) => outcome.accepted += 1,
            Ok(false) => outcome.refused += 1,
        }
        let bound = target.memory.saturating_add(BYTES_PER_BYTE.saturating_mul(input.len()));
        if used > bound {
            let reason = format!("{used} bytes of memory are more than the bound of {bound}");
            return Err(Failure { number, input, reason });
        }
    }
    Ok(outcome)
}

fn message(panic: Box<dyn std::any::Any + Send>) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    format!("panic: {}", text.unwrap_or("without a message"))
}
