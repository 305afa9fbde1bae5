//! Packs buffers with known lifetimes into one arena.

use super::{Buffer, Home};

/// Every buffer starts at a multiple of this: a cache line, and the widest vector.
pub const ALIGNMENT: usize = 64;

/// Gives each buffer of the arena an offset so that no two that live at the same time overlap; returns the arena's length.
///
/// Greedy by size: the largest buffers choose first, each the lowest gap that fits. Within a few per cent of the
/// lower bound (the most bytes alive at any step) on the models here.
pub(super) fn assign_offsets(buffers: &mut [Buffer]) -> usize {
    let in_arena = |index: &usize| buffers[*index].home != Home::Own;
    let mut order: Vec<usize> = (0..buffers.len()).filter(in_arena).collect();
    order.sort_by_key(|&i| (std::cmp::Reverse(buffers[i].bytes), buffers[i].first));
    let mut placed: Vec<usize> = Vec::with_capacity(buffers.len());
    let mut arena = 0;
    for &index in &order {
        let offset = lowest_gap(buffers, &placed, index);
        buffers[index].home = Home::Arena(offset);
        arena = arena.max(offset + padded(buffers[index].bytes));
        let position = placed.partition_point(|&other| buffers[other].offset() <= offset);
        placed.insert(position, index);
    }
    arena
}

/// The lowest offset at which buffer `index` meets none of `placed` (sorted by offset) that live with it.
fn lowest_gap(buffers: &[Buffer], placed: &[usize], index: usize) -> usize {
    let this = &buffers[index];
    let mut offset = 0;
    for other in placed.iter().map(|&other| &buffers[other]) {
        let together = other.first <= this.last && this.first <= other.last;
        if !together || other.bytes == 0 {
            continue;
        }
        if offset + padded(this.bytes) <= other.offset() {
            break;
        }
        offset = offset.max(other.offset() + padded(other.bytes));
    }
    offset
}

impl Buffer {
    /// Position in the arena; 0 for a buffer outside.
    fn offset(&self) -> usize {
        match self.home {
            Home::Arena(offset) => offset,
            Home::Own => 0,
        }
    }
}

fn padded(bytes: usize) -> usize {
    bytes.next_multiple_of(ALIGNMENT)
}

#[cfg(test)]
mod tests {
    use cutout_testing::Random;

    use super::*;

    #[test]
    fn buffers_alive_together_never_overlap() {
        let mut random = Random::new(7);
        for round in 0..300 {
            let steps = 1 + random.below(40);
            let mut buffers: Vec<Buffer> = (0..random.below(60))
                .map(|_| {
                    let first = random.below(steps);
                    let last = first + random.below(steps - first + 1);
                    Buffer { home: Home::Arena(0), bytes: random.below(5000), first, last }
                })
                .collect();
            let arena = assign_offsets(&mut buffers);
            for (i, a) in buffers.iter().enumerate() {
                assert!(
                    a.offset() % ALIGNMENT == 0 && a.offset() + a.bytes <= arena,
                    "round {round}"
                );
                for b in &buffers[i + 1..] {
                    let together = a.first <= b.last && b.first <= a.last;
                    let apart =
                        a.offset() + a.bytes <= b.offset() || b.offset() + b.bytes <= a.offset();
                    assert!(
                        !together || apart || a.bytes * b.bytes == 0,
                        "round {round}: {a:?} {b:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn memory_is_reused_once_it_is_free() {
        let mut buffers: Vec<Buffer> = (0..10)
            .map(|i| Buffer { home: Home::Arena(0), bytes: 640, first: i, last: i + 1 })
            .collect();
        assert_eq!(assign_offsets(&mut buffers), 2 * 640);
    }
}
