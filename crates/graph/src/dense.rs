//! The tensors that reference definitions compute on.

use cutout_tensor::{DType, Shape, Tensor, TensorError, TensorType, contiguous_strides};

use crate::Real;

/// Elements of a [`DenseTensor`] tensor: all float types as `T`, all integer types as `i64`.
#[derive(Clone, Debug, PartialEq)]
pub enum Data<T> {
    /// Floating-point values.
    Real(Vec<T>),
    /// Whole numbers.
    Int(Vec<i64>),
    /// Truth values.
    Bool(Vec<bool>),
}

/// A dense row-major tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct DenseTensor<T> {
    /// Lengths of the axes.
    pub shape: Shape,
    /// The elements.
    pub data: Data<T>,
}

impl<T: Real> DenseTensor<T> {
    /// A tensor of floating-point values.
    pub fn from_real(shape: impl Into<Shape>, values: Vec<T>) -> Self {
        DenseTensor::checked(shape.into(), values.len(), Data::Real(values))
    }

    /// A tensor of whole numbers.
    pub fn from_int(shape: impl Into<Shape>, values: Vec<i64>) -> Self {
        DenseTensor::checked(shape.into(), values.len(), Data::Int(values))
    }

    /// A tensor of truth values.
    pub fn from_bool(shape: impl Into<Shape>, values: Vec<bool>) -> Self {
        DenseTensor::checked(shape.into(), values.len(), Data::Bool(values))
    }

    fn checked(shape: Shape, found: usize, data: Data<T>) -> Self {
        assert_eq!(shape.elements(), found, "a reference returns as many elements as its shape");
        DenseTensor { shape, data }
    }

    /// The values of a float tensor.
    ///
    /// # Panics
    /// For another element type: inference has checked it.
    pub fn real(&self) -> &[T] {
        match &self.data {
            Data::Real(values) => values,
            Data::Int(_) | Data::Bool(_) => panic!("inference lets only floats reach this input"),
        }
    }

    /// The values of an integer tensor; as [`DenseTensor::real`].
    pub fn int(&self) -> &[i64] {
        match &self.data {
            Data::Int(values) => values,
            Data::Real(_) | Data::Bool(_) => {
                panic!("inference lets only integers reach this input")
            }
        }
    }

    /// The values of a bool tensor; as [`DenseTensor::real`].
    pub fn bool(&self) -> &[bool] {
        match &self.data {
            Data::Bool(values) => values,
            Data::Real(_) | Data::Int(_) => panic!("inference lets only bools reach this input"),
        }
    }

    /// The elements at the positions that `source` gives, of any type: `result[i] = self[source(i)]`.
    pub fn gather(&self, shape: impl Into<Shape>, source: impl Fn(usize) -> usize) -> Self {
        let shape = shape.into();
        let count = shape.elements();
        let data = match &self.data {
            Data::Real(values) => Data::Real((0..count).map(|i| values[source(i)]).collect()),
            Data::Int(values) => Data::Int((0..count).map(|i| values[source(i)]).collect()),
            Data::Bool(values) => Data::Bool((0..count).map(|i| values[source(i)]).collect()),
        };
        DenseTensor { shape, data }
    }

    /// Elements of several tensors of one type: `result[i] = parts[part][position]` for `(part, position) = source(i)`.
    pub fn choose(
        parts: &[&Self],
        shape: impl Into<Shape>,
        source: impl Fn(usize) -> (usize, usize),
    ) -> Self {
        let shape = shape.into();
        let sources = (0..shape.elements()).map(source);
        let data = match &parts[0].data {
            Data::Real(_) => Data::Real(sources.map(|(part, i)| parts[part].real()[i]).collect()),
            Data::Int(_) => Data::Int(sources.map(|(part, i)| parts[part].int()[i]).collect()),
            Data::Bool(_) => Data::Bool(sources.map(|(part, i)| parts[part].bool()[i]).collect()),
        };
        DenseTensor { shape, data }
    }

    /// The elements of a host tensor; half precision widens exactly.
    pub fn from_tensor(tensor: &Tensor) -> Result<Self, TensorError> {
        let shape = tensor.shape().clone();
        let data = match tensor.dtype() {
            DType::F32 | DType::F16 | DType::BF16 => {
                Data::Real(tensor.to_f64_vec()?.into_iter().map(T::of).collect())
            }
            DType::I64 => Data::Int(tensor.to_vec::<i64>()?),
            DType::I8 | DType::U8 | DType::I32 => {
                Data::Int(tensor.to_f64_vec()?.into_iter().map(|value| value as i64).collect())
            }
            DType::Bool => Data::Bool(tensor.to_vec::<bool>()?),
        };
        Ok(DenseTensor { shape, data })
    }

    /// A host tensor of type `ty`; floats are rounded to its precision.
    pub fn to_tensor(&self, ty: &TensorType) -> Result<Tensor, TensorError> {
        let tensor = match &self.data {
            Data::Real(values) => {
                let rounded: Vec<f32> = values.iter().map(|x| x.as_f64() as f32).collect();
                Tensor::from_vec(self.shape.clone(), rounded)?
            }
            Data::Int(values) => Tensor::from_vec(self.shape.clone(), values.clone())?,
            Data::Bool(values) => Tensor::from_vec(self.shape.clone(), values.clone())?,
        };
        tensor.cast(ty.dtype)
    }
}

/// Splits a row-major position into one index per axis.
pub fn unravel(mut position: usize, shape: &[usize]) -> Vec<usize> {
    let mut index = vec![0; shape.len()];
    for axis in (0..shape.len()).rev() {
        index[axis] = position % shape[axis];
        position /= shape[axis];
    }
    index
}

/// Row-major position of an index.
pub fn ravel(index: &[usize], shape: &[usize]) -> usize {
    index.iter().zip(contiguous_strides(shape)).map(|(i, stride)| i * stride).sum()
}

/// Position in `source` of the element that position `i` of `target` reads when `source` is broadcast to `target`.
pub fn broadcast_position(i: usize, source: &[usize], target: &[usize]) -> usize {
    let missing = target.len() - source.len();
    let (mut rest, mut position, mut stride) = (i, 0, 1);
    for (axis, &length) in target.iter().enumerate().skip(missing).rev() {
        let own = source[axis - missing];
        if own != 1 {
            position += rest % length * stride;
        }
        rest /= length;
        stride *= own;
    }
    position
}

/// `a · b` for `a: [rows, depth]` and `b: [depth, columns]`, appended to `products`. Every sum is taken in the order of `depth`; a whole
/// row of sums grows at a time, which processors do much faster than one sum after another.
pub(crate) fn multiply<T: Real>(a: &[T], b: &[T], columns: usize, products: &mut Vec<T>) {
    let depth = b.len() / columns.max(1);
    for row in a.chunks(depth.max(1)) {
        let start = products.len();
        products.resize(start + columns, T::ZERO);
        for (&left, right) in row.iter().zip(b.chunks(columns.max(1))) {
            for (sum, &right) in products[start..].iter_mut().zip(right) {
                *sum += left * right;
            }
        }
    }
}

/// A matrix of rows of `columns` elements as its transpose.
pub(crate) fn transposed<T: Copy>(matrix: &[T], columns: usize) -> Vec<T> {
    let column = |index: usize| matrix.iter().skip(index).step_by(columns.max(1)).copied();
    (0..columns).flat_map(column).collect()
}
