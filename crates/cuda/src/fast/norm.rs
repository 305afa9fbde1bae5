//! Layer norm into halves or bytes, and halves into bytes: `sm90/norm.cu`.

use cutout_tensor::DType;

use super::operand::{count, half_name};
use crate::launch::{Argument, KernelName, Launch, Place};
use crate::lower::Target;
use crate::variants::Family;

/// Layer norm of contiguous rows `f32[rows, width]`.
#[derive(Clone, Copy, Debug)]
pub struct Norm {
    /// The rows.
    pub x: Place,
    /// Rows.
    pub rows: usize,
    /// Elements of a row.
    pub width: usize,
    /// `f32[width]`.
    pub gain: Place,
    /// `f32[width]`.
    pub bias: Place,
    /// Added to the variance.
    pub epsilon: f32,
    /// Where the result goes, contiguous.
    pub output: Place,
    /// What the result is.
    pub to: NormOutput,
}

/// The result of a norm.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum NormOutput {
    /// Halves of a type.
    Half(DType),
    /// Bytes, with the step of each row in `f32[rows]`.
    Bytes(Place),
}

/// Lanes of a row and float4s of a lane, for each width that is compiled: width = 4 · lanes · count.
const SHAPES: [[usize; 2]; 16] = [
    [4, 7],
    [4, 9],
    [8, 3],
    [8, 7],
    [8, 9],
    [16, 3],
    [16, 4],
    [16, 7],
    [16, 9],
    [32, 3],
    [32, 4],
    [32, 6],
    [32, 7],
    [32, 8],
    [32, 9],
    [32, 10],
];

/// Longest row that [`quantize`] takes.
const LONGEST_ROW: usize = 8192;

/// Longest row that one warp quantises; longer ones are a block's.
const LONGEST_OF_WARP: usize = 1280;

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
struct NormParameters {
    rows: i32,
    epsilon: f32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
struct QuantizeParameters {
    rows: i32,
    width: i32,
}

/// The launch of a norm, if a kernel takes it.
pub fn norm(norm: &Norm, target: Target) -> Option<Launch> {
    let [lanes, per] = SHAPES.into_iter().find(|[lanes, per]| 4 * lanes * per == norm.width)?;
    let aligned = [norm.x, norm.gain, norm.bias, norm.output]
        .iter()
        .all(|place| place.offset.is_multiple_of(16));
    if target.family != Family::Sm90a || !aligned || norm.rows == 0 {
        return None;
    }
    let (prefix, step) = match norm.to {
        NormOutput::Half(stored) => (format!("norm_{}", half_name(stored)?), None),
        NormOutput::Bytes(step) => ("norm_bytes_f16".to_owned(), Some(step)),
    };
    let mut arguments = vec![
        Argument::Read(norm.x),
        Argument::Read(norm.gain),
        Argument::Read(norm.bias),
        Argument::Write(norm.output),
    ];
    arguments.extend(step.map(Argument::Write));
    let parameters = NormParameters { rows: count(norm.rows)?, epsilon: norm.epsilon };
    arguments.push(Argument::of(&parameters));
    Some(Launch {
        kernel: KernelName::from(format!("{prefix}_{lanes}x{per}")),
        grid: [u32::try_from((norm.rows * lanes).div_ceil(128)).ok()?, 1, 1],
        block: 128,
        shared_bytes: 0,
        arguments,
    })
}

/// The launch that turns contiguous rows of halves into bytes and a step for each row, as [`QuantizedLinear`] defines them.
///
/// [`QuantizedLinear`]: cutout_graph::ops::QuantizedLinear
pub fn quantize(
    (x, stored): (Place, DType),
    [rows, width]: [usize; 2],
    [output, step]: [Place; 2],
    target: Target,
) -> Option<Launch> {
    let aligned = x.offset.is_multiple_of(16) && output.offset.is_multiple_of(8);
    let length = width.is_multiple_of(8) && (8..=LONGEST_ROW).contains(&width);
    if target.family != Family::Sm90a || !aligned || !length || rows == 0 {
        return None;
    }
    let parameters = QuantizeParameters { rows: count(rows)?, width: count(width)? };
    let lanes = if width <= LONGEST_OF_WARP { 32 } else { 128 };
    let per = width.div_ceil(8 * lanes);
    Some(Launch {
        kernel: KernelName::from(format!("quantize_{}_{lanes}x{per}", half_name(stored)?)),
        grid: [u32::try_from((rows * lanes).div_ceil(128)).ok()?, 1, 1],
        block: 128,
        shared_bytes: 0,
        arguments: vec![
            Argument::Read(x),
            Argument::Write(output),
            Argument::Write(step),
            Argument::of(&parameters),
        ],
    })
}
