use cutout_graph::Packed;
use cutout_tensor::TensorError;
use half::{bf16, f16};

use super::*;
use crate::gemm::right::{RightBlock, RightView};

fn product_with(problem: &Problem, packed: &PackedWeights) -> Vec<f32> {
    let mut output = problem.blank();
    let target = Output::new(&mut output, problem.columns + problem.gap);
    gemm(&Pool::new(1), &problem.source(), packed, &Epilogue::NONE, target);
    output
}

#[test]
fn weights_of_either_order_and_any_stride_pack_alike() {
    for isa in Isa::available() {
        let problem = Problem::new(10, 33, 77, 0);
        let expected = product_with(&problem, &problem.packed(isa));
        let (columns, depth) = (problem.columns, problem.depth);
        let mut transposed = vec![0.0; columns * depth];
        let mut sparse = vec![f32::NAN; columns * depth * 6];
        for n in 0..columns {
            for k in 0..depth {
                transposed[k * columns + n] = problem.weight[n * depth + k];
                sparse[n * depth * 6 + k * 3] = problem.weight[n * depth + k];
            }
        }
        let view = WeightView::depth_major(WeightData::F32(&transposed), columns, depth);
        assert_eq!(
            product_with(&problem, &PackedWeights::pack(&Pool::new(1), isa, &view).unwrap()),
            expected,
            "{isa:?}"
        );
        let view = WeightView {
            data: WeightData::F32(&sparse),
            outputs: columns,
            depth,
            output_stride: depth * 6,
            depth_stride: 3,
        };
        assert_eq!(
            product_with(&problem, &PackedWeights::pack(&Pool::new(1), isa, &view).unwrap()),
            expected,
            "{isa:?}"
        );
    }
}

#[test]
fn half_precision_weights_are_widened() {
    for isa in Isa::available() {
        let mut problem = Problem::new(10, 20, 50, 0);
        let halves: Vec<f16> = problem.weight.iter().map(|&x| f16::from_f32(x)).collect();
        let brains: Vec<bf16> = problem.weight.iter().map(|&x| bf16::from_f32(x)).collect();
        for data in [WeightData::F16(&halves), WeightData::Bf16(&brains)] {
            let view = WeightView::output_major(data, 50, 20);
            let found =
                product_with(&problem, &PackedWeights::pack(&Pool::new(1), isa, &view).unwrap());
            problem.weight = match data {
                WeightData::F16(data) => data.iter().map(|x| x.to_f32()).collect(),
                WeightData::Bf16(data) => data.iter().map(|x| x.to_f32()).collect(),
                WeightData::F32(_) => unreachable!("not in the list"),
            };
            assert_eq!(found, product_with(&problem, &problem.packed(isa)), "{isa:?}");
        }
    }
}

/// The panels of a right operand by their definition.
fn panels(view: &RightView<'_>, block: &RightBlock) -> Vec<f32> {
    let (width, depth) = (block.tile.columns(), block.depth.len());
    let element = |index: usize| {
        let column = index / (width * depth) * width + index % width;
        let source = column * view.column_stride + index / width % depth * view.depth_stride;
        if column < block.columns.len() { view.data[source] } else { 0.0 }
    };
    (0..block.len()).map(element).collect()
}

#[test]
fn panels_are_padded_with_zeros() {
    for isa in Isa::available() {
        for columns in [1, 50, 77] {
            let (depth, data) = (19, Noise(9).floats(19 * 77));
            let tile = Tile::choose(isa, columns);
            let block = RightBlock { tile, columns: 0..columns, depth: 0..depth };
            for (column_stride, depth_stride) in [(depth, 1), (1, columns)] {
                let view = RightView { data: &data, column_stride, depth_stride };
                let mut packed = vec![f32::NAN; block.len()];
                view.pack(&block, &mut packed);
                assert_eq!(packed, panels(&view, &block), "{isa:?} {columns}");
            }
        }
    }
}

#[test]
#[should_panic(expected = "elements needed")]
fn a_view_beyond_its_data_is_refused() {
    let data = [0.0; 11];
    PackedWeights::pack(
        &Pool::new(1),
        Isa::Portable,
        &WeightView::output_major(WeightData::F32(&data), 3, 4),
    )
    .unwrap();
}

#[test]
fn row_major_blocks_are_packed_as_documented() {
    let (rows, depth, stride) = (23, 41, 45);
    let data = Noise(3).floats(rows * stride);
    let matrix = RowMajor::new(&data, rows, depth, stride);
    for isa in Isa::available() {
        for panel_rows in [1, 4, 6, isa.lanes()] {
            let block = PanelBlock { isa, rows: 2..21, depth: 5..40, panel_rows };
            let mut packed = vec![f32::NAN; block.len()];
            matrix.pack(&block, &mut packed);
            for (index, &found) in packed.iter().enumerate() {
                let (panel, rest) = (index / (35 * panel_rows), index % (35 * panel_rows));
                let row = 2 + panel * panel_rows + rest % panel_rows;
                let column = 5 + rest / panel_rows;
                let expected = if row < 21 { data[row * stride + column] } else { 0.0 };
                assert_eq!(found, expected, "{isa:?} {panel_rows} at {index}");
            }
        }
    }
}

/// A custom source: rows in reverse order.
struct Reversed<'a>(&'a Problem);

impl LeftSource for Reversed<'_> {
    fn rows(&self) -> usize {
        self.0.rows
    }

    fn depth(&self) -> usize {
        self.0.depth
    }

    fn pack(&self, block: &PanelBlock, out: &mut [f32]) {
        for (rows, place) in block.panels() {
            let slices: Vec<&[f32]> = rows
                .map(|row| {
                    &self.0.left[(self.0.rows - 1 - row) * self.0.depth..][block.depth.clone()]
                })
                .collect();
            interleave_rows(block.isa, block.panel_rows, &slices, &mut out[place]);
        }
    }
}

#[test]
fn any_source_can_be_the_left_operand() {
    for isa in Isa::available() {
        let problem = Problem::new(50, 30, 40, 0);
        let forward = problem.run(isa, 1, &Epilogue::NONE);
        let mut backward = problem.blank();
        let target = Output::new(&mut backward, 40);
        gemm(&Pool::new(2), &Reversed(&problem), &problem.packed(isa), &Epilogue::NONE, target);
        for row in 0..50 {
            assert_eq!(backward[row * 40..][..40], forward[(49 - row) * 40..][..40], "{isa:?}");
        }
    }
}

/// All panels in single precision.
fn widened(weights: &PackedWeights) -> Vec<f32> {
    let mut scratch = vec![0.0; weights.stride()];
    let panels = 0..weights.outputs().div_ceil(weights.tile().columns());
    let depth = 0..weights.depth();
    panels.flat_map(|panel| weights.panel(panel, depth.clone(), &mut scratch).to_vec()).collect()
}

/// Packed half precision takes half the memory and gives the bits of the same values in single precision: over several blocks of
/// depths, with padding in the last panel, and with Strassen's algorithm.
#[test]
fn half_precision_is_packed_in_half_the_memory() {
    for (rows, depth, columns) in [(30, 40, 50), (3, 2100, 130), (3072, 256, 272)] {
        let problem = Problem::new(rows, depth, columns, 0);
        let halves: Vec<f16> = problem.weight.iter().map(|&x| f16::from_f32(x)).collect();
        let brains: Vec<bf16> = problem.weight.iter().map(|&x| bf16::from_f32(x)).collect();
        let singles: [Vec<f32>; 2] = [
            halves.iter().map(|x| x.to_f32()).collect(),
            brains.iter().map(|x| x.to_f32()).collect(),
        ];
        for isa in Isa::available() {
            let pack = |data: WeightData<'_>| {
                PackedWeights::pack(
                    &Pool::new(2),
                    isa,
                    &WeightView::output_major(data, columns, depth),
                )
                .unwrap()
            };
            let packed = [pack(WeightData::F16(&halves)), pack(WeightData::Bf16(&brains))];
            for (packed, single) in packed.iter().zip(&singles) {
                let expected = pack(WeightData::F32(single));
                assert_eq!(2 * packed.bytes(), expected.bytes());
                let found = product_with(&problem, packed);
                assert!(found == product_with(&problem, &expected), "{isa:?} {rows}x{depth}");
            }
        }
    }
}

#[test]
fn any_number_of_threads_packs_alike() {
    for (columns, depth) in [(0, 5), (5, 0), (100, 3), (700, 1100), (61, 5000)] {
        let data = Noise(3).floats(columns * depth);
        let half: Vec<bf16> = data.iter().map(|&value| bf16::from_f32(value)).collect();
        for data in [WeightData::F32(&data), WeightData::Bf16(&half)] {
            let view = WeightView::output_major(data, columns, depth);
            let expected = PackedWeights::pack(&Pool::new(1), Isa::detect(), &view).unwrap();
            for threads in [1, 3] {
                let found = PackedWeights::pack(&Pool::new(threads), Isa::detect(), &view).unwrap();
                assert!(
                    widened(&found) == widened(&expected),
                    "{columns}x{depth}, {threads} threads"
                );
            }
        }
    }
}

/// A weight that no machine has memory for: all strides are zero.
#[test]
fn panels_that_do_not_fit_are_an_error() {
    let view = WeightView {
        data: WeightData::F32(&[1.0]),
        outputs: 1 << 28,
        depth: 1 << 28,
        output_stride: 0,
        depth_stride: 0,
    };
    let packed = PackedWeights::pack(&Pool::new(1), Isa::detect(), &view);
    assert!(matches!(packed, Err(TensorError::OutOfMemory(bytes)) if bytes >= 1 << 58));
}
