//! Thousands of damaged files: no panic, and pixels of the size that the header gives.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::path::PathBuf;

use cutout_jpeg::Decoder;

/// Pixels of the largest file that is decoded.
const MOST_PIXELS: usize = 1 << 16;

/// A seeded xorshift generator, so that failures are reproducible.
struct Seeded(u64);

impl Seeded {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit.max(1) as u64) as usize
    }
}

fn mutate(random: &mut Seeded, file: &mut Vec<u8>) {
    let place = random.below(file.len());
    match random.below(7) {
        0 => file[place] ^= 1 << random.below(8),
        1 => file[place] = [0, 1, 0x7f, 0x80, 0xff][random.below(5)],
        2 => file.truncate(place.max(2)),
        3 => {
            let other = random.below(file.len());
            file.swap(place, other);
        }
        4 => file.insert(place, random.below(256) as u8),
        // A marker, and the repetition of a part.
        5 => {
            file.splice(place..place, [0xff, 0xc0 + random.below(0x40) as u8]);
        }
        _ => {
            let end = (place + random.below(64)).min(file.len());
            let part = file[place..end].to_vec();
            let target = random.below(file.len());
            file.splice(target..target, part);
        }
    }
}

#[test]
fn mutated_files_never_panic() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/jpeg");
    let mut paths: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "jpg"));
    paths.sort();
    let files: Vec<Vec<u8>> = paths.iter().map(|path| std::fs::read(path).unwrap()).collect();
    let mut random = Seeded(0x5eed);
    let (mut shown, mut refused) = (0, 0);
    for round in 0..40_000 {
        let mut file = files[round % files.len()].clone();
        for _ in 0..1 + random.below(4) {
            mutate(&mut random, &mut file);
        }
        let Ok(decoder) = Decoder::new(&file) else {
            refused += 1;
            continue;
        };
        let pixels = decoder.width() * decoder.height();
        if pixels > MOST_PIXELS {
            continue;
        }
        match decoder.decode() {
            Ok(picture) => {
                assert_eq!(picture.rgb.len(), 3 * pixels);
                shown += 1;
            }
            Err(error) => {
                assert!(!error.to_string().is_empty());
                refused += 1;
            }
        }
    }
    assert!(shown > 10_000 && refused > 1000, "{shown} shown, {refused} refused");
}
