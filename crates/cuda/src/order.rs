//! Which launches must wait for which.
//!
//! A launch waits for those before it that write what it reads or writes, or read what it writes. Launches that touch nothing in common may run at
//! the same time, as small ones of a decoder must if the card is to be busy.

use crate::launch::{Argument, Launch, Place, Region};

/// Memory that a launch touches.
#[derive(Default)]
struct Touched {
    reads: Vec<Place>,
    writes: Vec<Place>,
}

impl Touched {
    fn of(launch: &Launch) -> Touched {
        let mut touched = Touched::default();
        for argument in &launch.arguments {
            match argument {
                Argument::Read(place) => touched.reads.push(*place),
                Argument::Write(place) => touched.writes.push(*place),
                Argument::Table(places) => touched.reads.extend(places.iter().flatten()),
                Argument::TensorMap(map) if map.writes => touched.writes.push(map.place),
                Argument::TensorMap(map) => touched.reads.push(map.place),
                Argument::Null | Argument::Bytes(_) => {}
            }
        }
        // Nothing writes to weights and inputs.
        let changes = |place: &Place| match place.region {
            Region::Arena | Region::Output(_) => true,
            Region::Weight(_) | Region::Input(_) => false,
        };
        touched.reads.retain(changes);
        touched
    }

    fn conflicts(&self, earlier: &Touched) -> bool {
        let meets = |ours: &[Place], theirs: &[Place]| {
            ours.iter().any(|our| theirs.iter().any(|their| overlap(our, their)))
        };
        meets(&self.writes, &earlier.writes)
            || meets(&self.reads, &earlier.writes)
            || meets(&self.writes, &earlier.reads)
    }
}

fn overlap(a: &Place, b: &Place) -> bool {
    a.region == b.region && a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes
}

/// For each launch the earlier ones that it waits for, without those that these wait for already.
pub fn dependencies<'a>(launches: impl Iterator<Item = &'a Launch>) -> Vec<Vec<usize>> {
    let touched: Vec<Touched> = launches.map(Touched::of).collect();
    let words = touched.len().div_ceil(64);
    // Launches that each one comes after, directly or not, as bits.
    let mut after: Vec<Vec<u64>> = Vec::with_capacity(touched.len());
    let mut all = Vec::with_capacity(touched.len());
    for (index, launch) in touched.iter().enumerate() {
        let mut known = vec![0u64; words];
        let mut direct = Vec::new();
        for earlier in (0..index).rev() {
            let bit = 1u64 << (earlier % 64);
            if known[earlier / 64] & bit != 0 || !launch.conflicts(&touched[earlier]) {
                continue;
            }
            direct.push(earlier);
            known[earlier / 64] |= bit;
            known.iter_mut().zip(&after[earlier]).for_each(|(word, other)| *word |= other);
        }
        after.push(known);
        all.push(direct);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::KernelName;

    fn place(region: Region, offset: usize, bytes: usize) -> Place {
        Place { region, offset, bytes }
    }

    fn launch(reads: &[Place], writes: &[Place]) -> Launch {
        let reads = reads.iter().map(|&place| Argument::Read(place));
        let writes = writes.iter().map(|&place| Argument::Write(place));
        Launch {
            kernel: KernelName::from("kernel"),
            grid: [1; 3],
            block: 1,
            shared_bytes: 0,
            arguments: reads.chain(writes).collect(),
        }
    }

    #[test]
    fn launches_wait_for_what_they_touch() {
        let arena = |offset| place(Region::Arena, offset, 16);
        let launches = [
            launch(&[place(Region::Input(0), 0, 16)], &[arena(0)]),
            launch(&[place(Region::Input(0), 0, 16)], &[arena(16)]),
            // Reads both, so waits for both.
            launch(&[arena(0), arena(16)], &[arena(32)]),
            // Overwrites what the one before has read, and waits for nothing else.
            launch(&[place(Region::Weight(3), 0, 16)], &[arena(0)]),
            // Waits for the last writer alone: it came after the others.
            launch(&[arena(0)], &[place(Region::Output(1), 0, 16)]),
            launch(&[place(Region::Weight(3), 0, 16)], &[place(Region::Output(2), 0, 16)]),
            // Parts of two values: the second was complete before the first was written again.
            launch(&[arena(8)], &[arena(48)]),
        ];
        let expected: [&[usize]; 7] = [&[], &[], &[1, 0], &[2], &[3], &[], &[3]];
        let found = dependencies(launches.iter());
        for (index, expected) in expected.iter().enumerate() {
            assert_eq!(found[index], *expected, "launch {index}");
        }
    }
}
