//! Products of single tiles, by the twin and by the registers.

use cutout_testing::skip;
use half::bf16;

use super::*;
use crate::gemm::tests::Noise;

/// A tile of 16 by 16 `f32` or 16 by 32 bf16, filled by position.
fn single_tile(value: impl Fn(usize, usize) -> f32) -> [u8; TILE_BYTES] {
    let mut tile = [0; TILE_BYTES];
    for (index, bytes) in tile.chunks_exact_mut(4).enumerate() {
        bytes.copy_from_slice(&value(index / 16, index % 16).to_le_bytes());
    }
    tile
}

fn half_tile(value: impl Fn(usize, usize) -> f32) -> [u8; TILE_BYTES] {
    let mut tile = [0; TILE_BYTES];
    for (index, bytes) in tile.chunks_exact_mut(2).enumerate() {
        bytes.copy_from_slice(&bf16::from_f32(value(index / 32, index % 32)).to_le_bytes());
    }
    tile
}

/// A tile of 16 by 16 `i32`, or of 16 rows of 64 bytes.
fn byte_tile(value: impl Fn(usize, usize) -> i8) -> [u8; TILE_BYTES] {
    std::array::from_fn(|index| value(index / 64, index % 64) as u8)
}

/// `start + left · right` on a unit, by words.
fn words<U: TileUnit, N: TileNumbers>(tiles: [&[u8; TILE_BYTES]; 3]) -> Vec<[u8; 4]> {
    let mut result = [0u8; TILE_BYTES];
    // SAFETY: callers name a unit that the machine has; a tile has 16 rows of 64 bytes.
    #[expect(clippy::multiple_unsafe_ops_per_block, reason = "one product")]
    unsafe {
        let mut unit = U::configure();
        unit.load::<0>(tiles[0].as_ptr(), 64);
        unit.load::<1>(tiles[1].as_ptr(), 64);
        unit.load::<2>(tiles[2].as_ptr(), 64);
        N::dot::<U, 0, 1, 2>(&mut unit);
        unit.store::<0>(result.as_mut_ptr(), 64);
    }
    result.as_chunks().0.to_vec()
}

/// A product of bf16 numbers.
fn tile_product<U: TileUnit>(tiles: [&[u8; TILE_BYTES]; 3]) -> Vec<f32> {
    words::<U, Halves>(tiles).into_iter().map(f32::from_le_bytes).collect()
}

/// A product of bytes.
fn byte_product<U: TileUnit>(tiles: [&[u8; TILE_BYTES]; 3]) -> Vec<i32> {
    words::<U, Bytes>(tiles).into_iter().map(i32::from_le_bytes).collect()
}

/// Random operands of a product of bytes.
fn noisy_bytes(noise: &mut Noise) -> [[u8; TILE_BYTES]; 3] {
    std::array::from_fn(|_| std::array::from_fn(|_| noise.next() as u8))
}

#[test]
fn the_twin_multiplies_signed_bytes_and_wraps() {
    let mut noise = Noise(3);
    let [start, left, right] = noisy_bytes(&mut noise);
    let found = byte_product::<Twin>([&start, &left, &right]);
    for (index, &found) in found.iter().enumerate() {
        let (row, column) = (index / 16, index % 16);
        let start = i32::from_le_bytes(std::array::from_fn(|byte| start[4 * index + byte]));
        // Four depths of a column lie side by side.
        let product = |depth: usize| {
            let right = right[depth / 4 * 64 + column * 4 + depth % 4] as i8;
            i32::from(left[row * 64 + depth] as i8) * i32::from(right)
        };
        let sum: i32 = (0..64).map(product).sum();
        assert_eq!(found, start.wrapping_add(sum), "row {row}, column {column}");
    }
    let most = byte_tile(|_, place| if place % 4 == 3 { 0x7F } else { -1 });
    let ones = byte_tile(|_, _| 1);
    assert!(byte_product::<Twin>([&most, &ones, &ones]).iter().all(|&sum| sum == i32::MIN + 63));
}

/// Two depths, so that swapped operands and swapped halves of a word are noticed.
#[test]
fn the_left_operand_has_rows_and_the_right_one_columns() {
    let left = byte_tile(|row, depth| match depth {
        0 => row as i8,
        5 => 1,
        _ => 0,
    });
    let right = byte_tile(|word, place| match (word, place % 4) {
        (0, 0) => 10,
        (1, 1) => (place / 4) as i8,
        _ => 0,
    });
    let zero = byte_tile(|_, _| 0);
    let found = byte_product::<Twin>([&zero, &left, &right]);
    let expected: Vec<i32> = (0..256).map(|index| 10 * (index / 16) + index % 16).collect();
    assert_eq!(found, expected);
    let left = half_tile(|row, depth| match depth {
        0 => row as f32,
        3 => 1.0,
        _ => 0.0,
    });
    let right = half_tile(|pair, place| match (pair, place % 2) {
        (0, 0) => 16.0,
        (1, 1) => (place / 2) as f32,
        _ => 0.0,
    });
    let found = tile_product::<Twin>([&zero, &left, &right]);
    assert!(found.iter().enumerate().all(|(index, &sum)| sum == index as f32), "{found:?}");
}

#[test]
fn the_twin_keeps_what_is_not_a_number() {
    let one = half_tile(|_, depth| if depth == 0 { 1.0 } else { 0.0 });
    let right =
        |value: f32| half_tile(move |pair, place| if pair + place == 0 { value } else { 0.0 });
    let zero = byte_tile(|_, _| 0);
    let first = |value| tile_product::<Twin>([&zero, &one, &right(value)])[0];
    assert!(first(f32::NAN).is_nan());
    assert_eq!(first(f32::INFINITY), f32::INFINITY);
}

#[test]
fn the_twin_adds_even_and_odd_depths_apart() {
    // Even depths sum to 2^24 + 1, which rounds to 2^24; odd depths to 1. Added in order, they would give 2^24 + 2.
    let left = half_tile(|_, depth| match depth {
        0 => 4096.0,
        1 | 2 => 1.0,
        _ => 0.0,
    });
    let right = half_tile(|pair, column| match (pair, column % 2) {
        (0, 0) => 4096.0,
        (0 | 1, _) => 1.0,
        _ => 0.0,
    });
    let zero = single_tile(|_, _| 0.0);
    let found = tile_product::<Twin>([&zero, &left, &right]);
    assert!(found.iter().all(|&sum| sum == 16_777_216.0), "{found:?}");
}

#[test]
fn the_twin_flushes_denormal_numbers() {
    let tiny = f32::MIN_POSITIVE;
    let one = half_tile(|_, depth| if depth == 0 { 1.0 } else { 0.0 });
    let right = half_tile(|pair, column| if pair == 0 && column % 2 == 0 { tiny } else { 0.0 });
    let zero = single_tile(|_, _| 0.0);
    assert!(tile_product::<Twin>([&zero, &one, &right]).iter().all(|&sum| sum == tiny));
    let half = half_tile(|_, depth| if depth == 0 { 0.5 } else { 0.0 });
    assert!(tile_product::<Twin>([&zero, &half, &right]).iter().all(|&sum| sum == 0.0));
    let denormal = single_tile(|_, _| tiny / 2.0);
    assert!(tile_product::<Twin>([&denormal, &one, &right]).iter().all(|&sum| sum == tiny));
}

/// Says that the registers were not there to be compared with.
fn skip_registers() {
    skip("no tile registers (AMX): their products were not compared with the twin's");
}

#[test]
fn the_twin_has_the_bits_of_the_tile_registers_in_bf16() {
    if !Halves::is_permitted() {
        return skip_registers();
    }
    let mut noise = Noise(5);
    for round in 0..2000 {
        // Every third round has exponents around the least normal number.
        let scale = if round % 3 == 0 { 2f32.powi(-63) } else { 1.0 };
        let values: Vec<f32> = (0..1280).map(|_| noise.float() * scale).collect();
        let start = single_tile(|row, column| values[row * 16 + column] * scale);
        let left = half_tile(|row, depth| values[256 + row * 32 + depth]);
        let right = half_tile(|pair, column| values[768 + pair * 32 + column]);
        let of_twin = tile_product::<Twin>([&start, &left, &right]);
        let of_unit = tile_product::<Amx>([&start, &left, &right]);
        let bits = |sums: &[f32]| sums.iter().map(|sum| sum.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&of_twin), bits(&of_unit), "round {round}");
    }
}

#[test]
fn the_twin_has_the_bits_of_the_tile_registers_in_bytes() {
    if !Bytes::is_permitted() {
        return skip_registers();
    }
    let mut noise = Noise(6);
    for round in 0..500 {
        let [start, left, right] = noisy_bytes(&mut noise);
        let tiles = [&start, &left, &right];
        assert_eq!(byte_product::<Twin>(tiles), byte_product::<Amx>(tiles), "round {round}");
    }
}
