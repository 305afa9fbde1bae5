//! Shapes and tensor types.

use std::fmt;
use std::ops::{Deref, DerefMut};

use crate::{DType, TensorError};

/// Lengths of the axes, outermost first. The empty shape is a scalar.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Shape(Vec<usize>);

impl Shape {
    /// A shape from its axis lengths.
    pub fn new(axes: &[usize]) -> Self {
        Shape(axes.to_vec())
    }

    /// Number of axes.
    pub fn rank(&self) -> usize {
        self.0.len()
    }

    /// Number of elements; saturates instead of overflowing (see [`Shape::checked_len`]).
    pub fn elements(&self) -> usize {
        self.checked_len().unwrap_or(usize::MAX)
    }

    /// Number of elements, or an error if it overflows `usize`.
    pub fn checked_len(&self) -> Result<usize, TensorError> {
        if self.0.contains(&0) {
            return Ok(0);
        }
        self.0
            .iter()
            .try_fold(1usize, |product, &axis| product.checked_mul(axis))
            .ok_or_else(|| TensorError::TooLarge(self.clone()))
    }

    /// The shape that two operands broadcast to by NumPy's rule, or `None` if they are incompatible.
    pub fn broadcast(&self, other: &Shape) -> Option<Shape> {
        let rank = self.rank().max(other.rank());
        let axis = |shape: &Shape, i: usize| {
            let missing = rank - shape.rank();
            if i < missing { 1 } else { shape[i - missing] }
        };
        (0..rank)
            .map(|i| match (axis(self, i), axis(other, i)) {
                (a, b) if a == b => Some(a),
                (1, b) => Some(b),
                (a, 1) => Some(a),
                _ => None,
            })
            .collect::<Option<Vec<_>>>()
            .map(Shape)
    }

    /// Product of all axes but the last; 1 for a scalar or a vector. Saturates instead of overflowing.
    pub fn rows(&self) -> usize {
        Shape::new(&self.0[..self.rank().saturating_sub(1)]).elements()
    }

    /// Length of the last axis; 1 for a scalar.
    pub fn last_axis(&self) -> usize {
        self.0.last().copied().unwrap_or(1)
    }
}

impl Deref for Shape {
    type Target = [usize];
    fn deref(&self) -> &[usize] {
        &self.0
    }
}

impl DerefMut for Shape {
    fn deref_mut(&mut self) -> &mut [usize] {
        &mut self.0
    }
}

impl From<Vec<usize>> for Shape {
    fn from(axes: Vec<usize>) -> Self {
        Shape(axes)
    }
}

impl From<&[usize]> for Shape {
    fn from(axes: &[usize]) -> Self {
        Shape(axes.to_vec())
    }
}

impl<const N: usize> From<[usize; N]> for Shape {
    fn from(axes: [usize; N]) -> Self {
        Shape(axes.to_vec())
    }
}

impl FromIterator<usize> for Shape {
    fn from_iter<I: IntoIterator<Item = usize>>(axes: I) -> Self {
        Shape(axes.into_iter().collect())
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.0).finish()
    }
}

/// Strides, in elements, of a contiguous tensor of this shape.
pub fn contiguous_strides(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1usize; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis].saturating_mul(shape[axis].max(1));
    }
    strides
}

/// Element type and shape of a tensor.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TensorType {
    /// Type of the elements.
    pub dtype: DType,
    /// Lengths of the axes.
    pub shape: Shape,
}

impl TensorType {
    /// A type from element type and shape.
    pub fn new(dtype: DType, shape: impl Into<Shape>) -> Self {
        TensorType { dtype, shape: shape.into() }
    }

    /// An `f32` tensor of this shape.
    pub fn f32(shape: impl Into<Shape>) -> Self {
        TensorType::new(DType::F32, shape)
    }

    /// Number of axes.
    pub fn rank(&self) -> usize {
        self.shape.rank()
    }

    /// Bytes of a contiguous tensor of this type.
    pub fn bytes(&self) -> usize {
        self.shape.elements().saturating_mul(self.dtype.size())
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.dtype, self.shape)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broadcast_follows_numpy() {
        let shape = |axes: &[usize]| Shape::new(axes);
        assert_eq!(shape(&[2, 1, 3]).broadcast(&shape(&[4, 1])), Some(shape(&[2, 4, 3])));
        assert_eq!(shape(&[]).broadcast(&shape(&[5])), Some(shape(&[5])));
        assert_eq!(shape(&[0]).broadcast(&shape(&[1])), Some(shape(&[0])));
        assert_eq!(shape(&[2, 3]).broadcast(&shape(&[2, 4])), None);
    }

    #[test]
    fn lengths_never_overflow() {
        assert!(Shape::new(&[usize::MAX, 2]).checked_len().is_err());
        assert_eq!(Shape::new(&[usize::MAX, 2, 0]).checked_len(), Ok(0));
        assert_eq!(TensorType::f32([2, 3]).to_string(), "f32[2, 3]");
        assert_eq!(contiguous_strides(&[2, 3, 4]), [12, 4, 1]);
    }
}
