//! Mutations of valid inputs.

use cutout_testing::Random;

/// Longest input, in bytes: pieces are not repeated beyond it.
const LONGEST: usize = 1 << 20;

/// One input: a seed with one to six mutations. Favours both ends, where formats keep headers and directories.
pub fn mutated(seeds: &[Vec<u8>], words: &[&str], random: &mut Random) -> Vec<u8> {
    let mut bytes = seeds[random.below(seeds.len())].clone();
    for _ in 0..=random.below(6) {
        mutate(&mut bytes, seeds, words, random);
    }
    bytes
}

fn mutate(bytes: &mut Vec<u8>, seeds: &[Vec<u8>], words: &[&str], random: &mut Random) {
    if bytes.is_empty() {
        bytes.push(random.bits() as u8);
        return;
    }
    let at = position(bytes.len(), random);
    match random.below(12) {
        0..=2 => bytes[at] ^= 1 << random.below(8),
        3 => bytes[at] = random.bits() as u8,
        4 => bytes.truncate(at),
        5 | 6 => overwrite(&mut bytes[at..], random),
        7 if !words.is_empty() => {
            let word = words[random.below(words.len())].as_bytes();
            let end = (at + random.below(word.len() + 1)).min(bytes.len());
            bytes.splice(at..end, word.iter().copied());
        }
        8 => digits(bytes, at, random),
        9 => {
            // A piece of another seed, or of this one.
            let other = &seeds[random.below(seeds.len())];
            let from = random.below(other.len());
            let piece = &other[from..(from + 1 + random.below(64)).min(other.len())];
            insert(bytes, at, piece);
        }
        10 => {
            let end = (at + 1 + random.below(64)).min(bytes.len());
            bytes.drain(at..end);
        }
        _ => {
            let end = (at + 1 + random.below(64)).min(bytes.len());
            let piece = bytes[at..end].repeat(1 + random.below(8));
            insert(bytes, at, &piece);
        }
    }
}

fn position(length: usize, random: &mut Random) -> usize {
    let near = length.min(512);
    match random.below(3) {
        0 => random.below(near),
        1 => length - 1 - random.below(near),
        _ => random.below(length),
    }
}

fn insert(bytes: &mut Vec<u8>, at: usize, piece: &[u8]) {
    if bytes.len() + piece.len() <= LONGEST {
        bytes.splice(at..at, piece.iter().copied());
    }
}

/// Overwrites bytes that may be a length with an extreme number.
fn overwrite(bytes: &mut [u8], random: &mut Random) {
    let numbers =
        [u64::MAX, u64::MAX >> 1, 1 << 63, 1 << 32, u64::from(u32::MAX), 1 << 40, 0, 1 << 20];
    let number = numbers[random.below(numbers.len())];
    let number = if random.below(2) == 0 { number.to_le_bytes() } else { number.to_be_bytes() };
    let length = [2, 4, 8][random.below(3)].min(bytes.len());
    bytes[..length].copy_from_slice(&number[..length]);
}

/// Replaces the decimal number at or after a position.
fn digits(bytes: &mut Vec<u8>, at: usize, random: &mut Random) {
    const NUMBERS: [&str; 12] = [
        "0",
        "1",
        "-1",
        "65536",
        "4294967296",
        "18446744073709551615",
        "99999999999999999999",
        "1e308",
        "-1e999",
        "0.5",
        "NaN",
        "inf",
    ];
    let Some(start) = bytes[at..].iter().position(u8::is_ascii_digit).map(|found| at + found)
    else {
        return;
    };
    let length = bytes[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let number = NUMBERS[random.below(NUMBERS.len())];
    bytes.splice(start..start + length, number.bytes());
}
