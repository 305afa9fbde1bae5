//! A few thousand mutated inputs of every target, the same in every run. `cargo xtask fuzz` reads a million of each.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use cutout_fuzz::{CountingAllocator, Range, TARGETS, run};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Inputs of each target.
const INPUTS: u64 = 1500;

// A single test, so that no other test allocates at the same time.
#[test]
fn no_input_panics_or_exceeds_its_memory() {
    for target in TARGETS {
        // A few checkpoints among the seeds are of kinds that are refused.
        let accepted = (target.seeds)().iter().filter(|seed| (target.read)(seed)).count();
        assert!(accepted > 0, "{}: all seeds are refused", target.name);
        let range = Range { seed: 7, first: 0, inputs: INPUTS };
        let outcome = run(target, range).unwrap_or_else(|failure| {
            panic!("{}: input {}: {}", target.name, failure.number, failure.reason)
        });
        // Or the mutations are too large to reach what is behind the first check.
        assert!(outcome.accepted > 0, "{}: {outcome:?}", target.name);
    }
}
