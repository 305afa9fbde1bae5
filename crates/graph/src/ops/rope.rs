//! Rotary position embedding: rotation of pairs of channels by an angle that depends on the token.

use cutout_tensor::{Tensor, TensorError, TensorType, memory};

use crate::cases::noise;
use crate::op::{axes, expect_f32, expect_shape, take};
use crate::{Case, DenseTensor, OpDef, OpError, Real, Value};

/// Rotation of adjacent pairs of channels, `(a, b) -> (a·cos - b·sin, a·sin + b·cos)`.
///
/// `x: f32[.., tokens, width]`, `cos` and `sin: f32[positions, width / 2]`. Token `t` is rotated by row
/// `t % positions`; the last `tail` tokens are not rotated. `tokens - tail` is a multiple of `positions`. The
/// tables hold any numbers: nothing requires `cos² + sin² = 1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Rope {
    /// Tokens at the end that are not rotated.
    pub tail: usize,
}

impl<'g> Value<'g> {
    /// Rotation of every token of `[.., tokens, width]`; see [`Rope`].
    #[track_caller]
    pub fn rope(self, cos: Value<'g>, sin: Value<'g>) -> Value<'g> {
        self.apply(Rope { tail: 0 }, &[cos, sin])
    }
}

impl OpDef for Rope {
    const NAME: &'static str = "rope";

    fn infer(&self, inputs: &[&TensorType]) -> Result<TensorType, OpError> {
        let [x, cos, sin] = take(inputs)?;
        expect_f32("x", x)?;
        let [.., tokens, width] = x.shape[..] else {
            return Err(OpError::Shape(format!("x needs at least 2 axes, got {x}")));
        };
        let positions = check_table([("cos", cos), ("sin", sin)], width)?;
        check_tokens("tokens", tokens, self.tail, positions)?;
        Ok(x.clone())
    }

    fn reference<T: Real>(&self, inputs: &[&DenseTensor<T>]) -> DenseTensor<T> {
        let [x, cos, sin] = [inputs[0], inputs[1], inputs[2]];
        let &[.., tokens, width] = &x.shape[..] else { panic!("inference checked the rank") };
        let table = RopeTable::new(cos, sin);
        let mut values = x.real().to_vec();
        for (row, channels) in values.chunks_mut(width).enumerate() {
            let token = row % tokens;
            if token < tokens - self.tail {
                table.rotate(channels, token);
            }
        }
        DenseTensor::from_real(x.shape.clone(), values)
    }

    fn flops(&self, _: &[&TensorType], output: &TensorType) -> u64 {
        (output.shape.elements() as u64).saturating_mul(3)
    }

    fn cases() -> Vec<Case> {
        let case = |name, tail, x: &[usize], positions: usize| {
            let table = [positions, x[x.len() - 1] / 2];
            Case::new(name, Rope { tail }, [noise(x), noise(table), noise(table)])
        };
        vec![
            case("one_pair", 0, &[1, 2], 1),
            case("matrix", 0, &[9, 8], 9),
            case("odd_pairs", 0, &[2, 5, 14], 5),
            case("heads", 0, &[2, 3, 7, 64], 7),
            case("repeated_positions", 0, &[2, 12, 34], 4),
            case("tail", 5, &[1, 17, 256], 6),
            case("only_tail", 3, &[2, 3, 4], 7),
            case("no_tokens", 0, &[2, 0, 4], 3),
            case("no_batch", 1, &[0, 4, 4], 3),
        ]
    }
}

/// Rows of cosines and sines, one per position, shared by the heads.
pub(super) struct RopeTable<'a, T> {
    cos: &'a [T],
    sin: &'a [T],
    positions: usize,
    pairs: usize,
}

impl<'a, T: Real> RopeTable<'a, T> {
    /// The table of two inputs that [`check_table`] accepts.
    pub(super) fn new(cos: &'a DenseTensor<T>, sin: &'a DenseTensor<T>) -> Self {
        let &[positions, pairs] = &cos.shape[..] else { panic!("inference checked the table") };
        RopeTable { cos: cos.real(), sin: sin.real(), positions, pairs }
    }

    /// Rotates the channels of one token, head after head, as `index % positions` says.
    pub(super) fn rotate(&self, channels: &mut [T], index: usize) {
        let row = index % self.positions * self.pairs;
        for (i, pair) in channels.chunks_mut(2).enumerate() {
            let (cos, sin) = (self.cos[row + i % self.pairs], self.sin[row + i % self.pairs]);
            let (a, b) = (pair[0], pair[1]);
            pair[0] = a * cos - b * sin;
            pair[1] = a * sin + b * cos;
        }
    }
}

/// Checks cosines and sines for heads of `width` channels, and returns the number of positions.
pub(super) fn check_table(
    [(cos_name, cos), (sin_name, sin)]: [(&'static str, &TensorType); 2],
    width: usize,
) -> Result<usize, OpError> {
    if width == 0 || !width.is_multiple_of(2) {
        let message = format!("rotation needs an even width above 0, got {width}");
        return Err(OpError::Shape(message));
    }
    expect_f32(cos_name, cos)?;
    expect_f32(sin_name, sin)?;
    let [positions, _] = axes(cos_name, cos)?;
    if positions == 0 {
        return Err(OpError::Shape(format!("{cos_name} needs at least one position, got {cos}")));
    }
    expect_shape(cos_name, cos, &[positions, width / 2])?;
    expect_shape(sin_name, sin, &[positions, width / 2])?;
    Ok(positions)
}

/// Checks that the tokens before the tail go through the positions a whole number of times.
pub(super) fn check_tokens(
    name: &str,
    tokens: usize,
    tail: usize,
    positions: usize,
) -> Result<(), OpError> {
    let Some(rotated) = tokens.checked_sub(tail) else {
        return Err(OpError::Shape(format!("a tail of {tail} is longer than the {tokens} {name}")));
    };
    if rotated.is_multiple_of(positions) {
        return Ok(());
    }
    Err(OpError::Shape(format!(
        "{rotated} rotated {name} are no multiple of {positions} positions"
    )))
}

/// Cosines and sines, `f32[height * width, channels / 2]` each, of the axial rotation in SAM 2's memory attention and
/// SAM 3's image encoder, for heads of `channels` channels on a row-major grid `[height, width]`.
///
/// The first half of the pairs is rotated by x, the second by y: pair `i` of a half by
/// `scale * position * theta^(-4 i / channels)`.
pub fn axial_rope_tables(
    grid: [usize; 2],
    channels: usize,
    theta: f64,
    scale: f64,
) -> Result<(Tensor, Tensor), TensorError> {
    let refuse = |message: String| Err(TensorError::Shape(message));
    if channels == 0 || !channels.is_multiple_of(4) {
        return refuse(format!("an axial table needs a multiple of 4 channels, got {channels}"));
    }
    if !(theta.is_finite() && theta > 0.0 && scale.is_finite()) {
        return refuse(format!(
            "theta must be finite and above 0, scale finite, got {theta}, {scale}"
        ));
    }
    let [height, width] = grid;
    let tokens = match height.checked_mul(width) {
        Some(tokens) if tokens > 0 => tokens,
        Some(_) | None => return refuse(format!("an axial table needs a grid, got {grid:?}")),
    };
    let shape = cutout_tensor::Shape::from([tokens, channels / 2]);
    shape.checked_len()?;
    let half = channels / 4;
    let turn = |pair: usize| theta.powf(-4.0 * pair as f64 / channels as f64);
    let turns: Vec<f64> = (0..half).map(turn).collect();
    // A coordinate's angles are the same in every row or column, so each is computed once.
    let table = |wave: fn(f64) -> f64| {
        let of =
            |place: usize| turns.iter().map(move |turn| wave(scale * place as f64 * turn) as f32);
        let places: Vec<Vec<f32>> =
            (0..height.max(width)).map(|place| of(place).collect()).collect();
        let mut elements = memory::with_capacity(shape.elements())?;
        for (y, x) in (0..height).flat_map(|y| (0..width).map(move |x| (y, x))) {
            elements.extend_from_slice(&places[x]);
            elements.extend_from_slice(&places[y]);
        }
        Tensor::from_vec::<f32>(shape.clone(), elements)
    };
    Ok((table(f64::cos)?, table(f64::sin)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axial_tables_turn_by_x_then_by_y() {
        // 3 rows of 2; 8 channels are 4 pairs: x at 1 and 0.1, y at 1 and 0.1 (theta 100).
        let (cos, sin) = axial_rope_tables([3, 2], 8, 100.0, 0.5).unwrap();
        assert_eq!(cos.shape()[..], [6, 4]);
        let (cos, sin) = (cos.to_vec::<f32>().unwrap(), sin.to_vec::<f32>().unwrap());
        for (token, (x, y)) in [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2)].iter().enumerate() {
            let (x, y) = (f64::from(*x) * 0.5, f64::from(*y) * 0.5);
            for (pair, angle) in [x, x * 0.1, y, y * 0.1].iter().enumerate() {
                assert!((f64::from(cos[token * 4 + pair]) - angle.cos()).abs() < 1e-7);
                assert!((f64::from(sin[token * 4 + pair]) - angle.sin()).abs() < 1e-7);
            }
        }
    }

    #[test]
    fn axial_tables_refuse_what_they_cannot_fill() {
        for (grid, channels, theta, scale) in [
            ([2, 2], 6, 1e4, 1.0),
            ([2, 2], 0, 1e4, 1.0),
            ([0, 2], 8, 1e4, 1.0),
            ([usize::MAX, 2], 8, 1e4, 1.0),
            ([usize::MAX, 1], 8, 1e4, 1.0),
            ([2, 2], 8, 0.0, 1.0),
            ([2, 2], 8, f64::NAN, 1.0),
            ([2, 2], 8, 1e4, f64::INFINITY),
        ] {
            assert!(axial_rope_tables(grid, channels, theta, scale).is_err());
        }
    }

    #[test]
    fn a_quarter_turn_moves_the_first_of_a_pair_to_the_second() {
        let row = |values: &[f64]| DenseTensor::from_real([1, values.len()], values.to_vec());
        let [x, cos, sin] = [row(&[3.0, 5.0]), row(&[0.0]), row(&[1.0])];
        assert_eq!(Rope { tail: 0 }.reference(&[&x, &cos, &sin]).real(), [-5.0, 3.0]);
        assert_eq!(Rope { tail: 1 }.reference(&[&x, &cos, &sin]).real(), [3.0, 5.0]);
    }

    #[test]
    fn tables_that_do_not_fit_are_refused() {
        let infer = |tail, x: &[usize], cos: &[usize], sin: &[usize]| {
            let types = [x, cos, sin].map(TensorType::f32);
            Rope { tail }.infer(&types.each_ref()).map_err(|error| error.to_string())
        };
        assert!(infer(1, &[7, 4], &[3, 2], &[3, 2]).is_ok());
        let refused = [
            (infer(0, &[7, 5], &[7, 2], &[7, 2]), "rotation needs an even width above 0, got 5"),
            (infer(0, &[7, 0], &[7, 0], &[7, 0]), "rotation needs an even width above 0, got 0"),
            (
                infer(0, &[7, 4], &[3, 2], &[3, 2]),
                "7 rotated tokens are no multiple of 3 positions",
            ),
            (infer(8, &[7, 4], &[7, 2], &[7, 2]), "a tail of 8 is longer than the 7 tokens"),
            (infer(0, &[0, 4], &[0, 2], &[0, 2]), "cos needs at least one position, got f32[0, 2]"),
            (infer(0, &[7, 4], &[7, 2], &[6, 2]), "sin must have shape [7, 2], got f32[6, 2]"),
            (infer(0, &[7], &[7, 2], &[7, 2]), "x needs at least 2 axes, got f32[7]"),
        ];
        for (found, expected) in refused {
            assert_eq!(found.unwrap_err(), expected);
        }
    }
}
