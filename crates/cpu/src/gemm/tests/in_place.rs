use half::{bf16, f16};

use super::*;

fn product(problem: &Problem, left: &dyn LeftSource, weights: &PackedWeights) -> Vec<f32> {
    let epilogue = problem.epilogue(1.0, Activation::Identity);
    let mut output = problem.blank();
    let target = Output::new(&mut output, problem.columns + problem.gap);
    gemm(&Pool::new(2), left, weights, &epilogue, target);
    output
}

/// Whole and partial panels, one and several blocks of depths, row strides that are and are not multiples of a cache line.
const SHAPES: [[usize; 4]; 8] = [
    [1, 5, 3, 0],
    [31, 48, 48, 0],
    [300, 37, 96, 3],
    [25, 192, 48, 8],
    [8, 1100, 50, 0],
    [40, 1024, 48, 0],
    [70, 64, 700, 0],
    [19, 0, 20, 1],
];

#[test]
fn rows_in_place_give_the_bits_of_packed_rows() {
    for isa in Isa::available() {
        for [rows, depth, columns, gap] in SHAPES {
            let problem = Problem::new(rows, depth, columns, gap);
            let (weights, source) = (problem.packed(isa), problem.source());
            assert!(source.in_place().is_some() && Packed(source).in_place().is_none());
            let found = product(&problem, &source, &weights);
            assert_eq!(found, product(&problem, &Packed(source), &weights), "{isa:?} {rows}");
            problem.check(&found, &problem.epilogue(1.0, Activation::Identity), isa.name());
        }
    }
}

/// A matrix that ends at a page that cannot be read.
#[cfg(target_os = "linux")]
#[test]
fn nothing_is_read_beyond_the_last_row() {
    let (page, access) = (64 << 10, libc::PROT_READ | libc::PROT_WRITE);
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping wherever the system wants it.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), 2 * page, access, kind, -1, 0) };
    assert_ne!(start, libc::MAP_FAILED);
    // SAFETY: the second page of the mapping, which holds nothing.
    let closed = unsafe { libc::mprotect(start.wrapping_byte_add(page), page, libc::PROT_NONE) };
    assert_eq!(closed, 0);
    for isa in Isa::available() {
        for rows in 1..=16 {
            let problem = Problem::new(rows, 21, 48, 0);
            let place = start.wrapping_byte_add(page).cast::<f32>().wrapping_sub(rows * 21);
            // SAFETY: the last elements of the first page, which is readable and writable and has no other user.
            let data = unsafe { std::slice::from_raw_parts_mut(place, rows * 21) };
            data.copy_from_slice(&problem.left);
            let weights = problem.packed(isa);
            let found = product(&problem, &RowMajor::new(data, rows, 21, 21), &weights);
            assert_eq!(found, product(&problem, &problem.source(), &weights), "{isa:?} {rows}");
        }
    }
    // SAFETY: the mapping made above, which is no longer used.
    assert_eq!(unsafe { libc::munmap(start, 2 * page) }, 0);
}

/// One task, several tasks (widened once), and a weight too large to be widened as a whole.
#[test]
fn half_precision_is_widened_for_any_number_of_tasks() {
    for isa in Isa::available() {
        for [rows, depth, columns] in [[20, 40, 100], [700, 40, 100], [250, 1040, 1010]] {
            let mut problem = Problem::new(rows, depth, columns, 0);
            let halves: Vec<f16> = problem.weight.iter().map(|&x| f16::from_f32(x)).collect();
            let brains: Vec<bf16> = problem.weight.iter().map(|&x| bf16::from_f32(x)).collect();
            let widened: [Vec<f32>; 2] = [
                halves.iter().map(|x| x.to_f32()).collect(),
                brains.iter().map(|x| x.to_f32()).collect(),
            ];
            let types = [WeightData::F16(&halves), WeightData::Bf16(&brains)];
            for (data, widened) in types.into_iter().zip(widened) {
                let view = WeightView::output_major(data, columns, depth);
                let weights = PackedWeights::pack(&Pool::new(1), isa, &view).unwrap();
                let found = product(&problem, &problem.source(), &weights);
                problem.weight = widened;
                let expected = product(&problem, &problem.source(), &problem.packed(isa));
                assert_eq!(found, expected, "{isa:?} {rows}");
            }
        }
    }
}
