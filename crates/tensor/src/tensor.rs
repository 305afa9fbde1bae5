//! Host tensors: strided views of shared bytes.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytemuck::{NoUninit, checked};
use half::{bf16, f16};

use crate::bytes::Owned;
use crate::{
    DType, Element, Shape, SharedBytes, TensorError, TensorType, contiguous_strides, memory,
};

/// Identity of the bytes behind a view: equal for two views of the same memory with the same layout.
/// Only meaningful while one of the tensors is alive.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StorageId {
    address: usize,
    offset: usize,
    strides: Vec<usize>,
    ty: TensorType,
}

/// A typed, strided view of shared bytes. Cheap to clone.
#[derive(Clone)]
pub struct Tensor {
    ty: TensorType,
    /// Stride of each axis, in elements; 0 for a broadcast axis.
    strides: Vec<usize>,
    /// Byte offset of the first element.
    offset: usize,
    storage: SharedBytes,
}

impl Tensor {
    /// A contiguous tensor that owns `values`, in row-major order.
    pub fn from_vec<T: Element>(
        shape: impl Into<Shape>,
        values: Vec<T>,
    ) -> Result<Self, TensorError> {
        let shape = shape.into();
        let expected = shape.checked_len()?;
        if values.len() != expected {
            return Err(TensorError::Length { shape, expected, found: values.len() });
        }
        let strides = contiguous_strides(&shape);
        let ty = TensorType::new(T::DTYPE, shape);
        Ok(Tensor { ty, strides, offset: 0, storage: Arc::new(Owned(values)) })
    }

    /// A contiguous tensor of type `ty` that owns `words`, the bytes of its elements in row-major order.
    pub fn from_words<W: NoUninit + Send + Sync>(
        ty: TensorType,
        words: Vec<W>,
    ) -> Result<Self, TensorError> {
        Tensor::from_bytes(ty, Arc::new(Owned(words)), 0)
    }

    /// A contiguous view of `ty` that starts `offset` bytes into `storage`.
    pub fn from_bytes(
        ty: TensorType,
        storage: SharedBytes,
        offset: usize,
    ) -> Result<Self, TensorError> {
        let expected = ty.shape.checked_len()?;
        let available = (*storage).as_ref().len().saturating_sub(offset) / ty.dtype.size();
        if expected > available {
            return Err(TensorError::Length { shape: ty.shape, expected, found: available });
        }
        let strides = contiguous_strides(&ty.shape);
        Ok(Tensor { ty, strides, offset, storage })
    }

    /// A scalar.
    pub fn scalar<T: Element>(value: T) -> Self {
        let ty = TensorType::new(T::DTYPE, []);
        Tensor { ty, strides: Vec::new(), offset: 0, storage: Arc::new(Owned(vec![value])) }
    }

    /// A tensor of zeros (`false` for `Bool`).
    pub fn zeros(ty: &TensorType) -> Result<Self, TensorError> {
        let elements = ty.shape.checked_len()?;
        let bytes = elements
            .checked_mul(ty.dtype.size())
            .ok_or_else(|| TensorError::TooLarge(ty.shape.clone()))?;
        // Eight-byte words keep every element type aligned.
        let storage = Arc::new(Owned(memory::zeroed::<i64>(bytes.div_ceil(8))?));
        Tensor::from_bytes(ty.clone(), storage, 0)
    }

    /// Element type and shape.
    pub fn ty(&self) -> &TensorType {
        &self.ty
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.ty.dtype
    }

    /// Lengths of the axes.
    pub fn shape(&self) -> &Shape {
        &self.ty.shape
    }

    /// Stride of each axis, in elements.
    pub fn strides(&self) -> &[usize] {
        &self.strides
    }

    /// Number of elements.
    pub fn elements(&self) -> usize {
        self.ty.shape.elements()
    }

    /// Whether the elements lie one after another in row-major order.
    pub fn is_contiguous(&self) -> bool {
        let expected = contiguous_strides(&self.ty.shape);
        self.elements() == 0
            || (0..self.ty.rank())
                .all(|axis| self.ty.shape[axis] == 1 || self.strides[axis] == expected[axis])
    }

    /// Identity of memory and layout: a key for caches of derived data.
    pub fn storage_id(&self) -> StorageId {
        StorageId {
            address: Arc::as_ptr(&self.storage).cast::<()>() as usize,
            offset: self.offset,
            strides: self.strides.clone(),
            ty: self.ty.clone(),
        }
    }

    /// Whether both are views of the same storage, even of different ranges of it.
    pub fn shares_memory(&self, other: &Tensor) -> bool {
        Arc::ptr_eq(&self.storage, &other.storage)
    }

    /// Whether the elements are read from a mapped file; see [`is_mapped`](crate::Bytes::is_mapped).
    pub fn is_mapped(&self) -> bool {
        self.storage.is_mapped()
    }

    /// Hints that the elements are unlikely to be read again; see [`release`](crate::Bytes::release).
    pub fn release(&self) {
        let axes = self.ty.shape.iter().zip(&self.strides);
        let last: usize = axes.map(|(length, stride)| length.saturating_sub(1) * stride).sum();
        if self.elements() > 0 {
            self.storage.release(self.offset..self.offset + (last + 1) * self.dtype().size());
        }
    }

    /// The elements as a slice. Fails for strided or misaligned views; [`Tensor::to_vec`] copies those.
    pub fn as_slice<T: Element>(&self) -> Result<&[T], TensorError> {
        self.expect_type(T::DTYPE)?;
        let refuse = |reason| TensorError::NotContiguous { shape: self.ty.shape.clone(), reason };
        checked::try_cast_slice(self.as_bytes()?).map_err(|error| match error {
            checked::CheckedCastError::InvalidBitPattern => TensorError::InvalidBits(T::DTYPE),
            checked::CheckedCastError::PodCastError(_) => refuse("misaligned"),
        })
    }

    /// The bytes of a contiguous tensor, in row-major order of its elements.
    pub fn as_bytes(&self) -> Result<&[u8], TensorError> {
        if !self.is_contiguous() {
            let shape = self.ty.shape.clone();
            return Err(TensorError::NotContiguous { shape, reason: "strided" });
        }
        Ok(&(*self.storage).as_ref()[self.offset..][..self.ty.bytes()])
    }

    /// A copy of the elements in row-major order, for any strides and alignment.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>, TensorError> {
        match self.as_slice::<T>() {
            Ok(values) => return Ok(memory::copied(values)?),
            Err(TensorError::NotContiguous { .. }) => {}
            Err(error) => return Err(error),
        }
        let bytes = (*self.storage).as_ref();
        let size = T::DTYPE.size();
        let mut values = memory::with_capacity(self.elements())?;
        for element in self.element_offsets() {
            let start = self.offset + element * size;
            let value = checked::try_pod_read_unaligned::<T>(&bytes[start..start + size])
                .map_err(|_| TensorError::InvalidBits(T::DTYPE))?;
            values.push(value);
        }
        Ok(values)
    }

    /// All elements as `f64` in row-major order, for any element type.
    pub fn to_f64_vec(&self) -> Result<Vec<f64>, TensorError> {
        fn convert<T: Element>(tensor: &Tensor) -> Result<Vec<f64>, TensorError> {
            let values = tensor.to_vec::<T>()?;
            Ok(memory::collected(values.len(), values.iter().map(|&value| T::to_f64(value)))?)
        }
        match self.dtype() {
            DType::F32 => convert::<f32>(self),
            DType::F16 => convert::<f16>(self),
            DType::BF16 => convert::<bf16>(self),
            DType::I8 => convert::<i8>(self),
            DType::U8 => convert::<u8>(self),
            DType::I32 => convert::<i32>(self),
            DType::I64 => convert::<i64>(self),
            DType::Bool => convert::<bool>(self),
        }
    }

    /// The values converted to `dtype`, contiguous. Copies nothing if type and layout already match.
    pub fn cast(&self, dtype: DType) -> Result<Tensor, TensorError> {
        fn convert<T: Element>(tensor: &Tensor) -> Result<Tensor, TensorError> {
            let values = tensor.to_f64_vec()?;
            let values = memory::collected(values.len(), values.into_iter().map(T::from_f64))?;
            Tensor::from_vec(tensor.shape().clone(), values)
        }
        if dtype == self.dtype() {
            return self.to_contiguous();
        }
        match dtype {
            DType::F32 => convert::<f32>(self),
            DType::F16 => convert::<f16>(self),
            DType::BF16 => convert::<bf16>(self),
            DType::I8 => convert::<i8>(self),
            DType::U8 => convert::<u8>(self),
            DType::I32 => convert::<i32>(self),
            DType::I64 => convert::<i64>(self),
            DType::Bool => convert::<bool>(self),
        }
    }

    /// The values, contiguous and aligned. Copies nothing if they already are.
    pub fn to_contiguous(&self) -> Result<Tensor, TensorError> {
        fn copy<T: Element>(tensor: &Tensor) -> Result<Tensor, TensorError> {
            if tensor.as_slice::<T>().is_ok() {
                return Ok(tensor.clone());
            }
            Tensor::from_vec(tensor.shape().clone(), tensor.to_vec::<T>()?)
        }
        match self.dtype() {
            DType::F32 => copy::<f32>(self),
            DType::F16 => copy::<f16>(self),
            DType::BF16 => copy::<bf16>(self),
            DType::I8 => copy::<i8>(self),
            DType::U8 => copy::<u8>(self),
            DType::I32 => copy::<i32>(self),
            DType::I64 => copy::<i64>(self),
            DType::Bool => copy::<bool>(self),
        }
    }

    /// A contiguous copy in memory of its own, shared with no other tensor.
    pub fn detached(&self) -> Result<Tensor, TensorError> {
        let contiguous = self.to_contiguous()?;
        let content = contiguous.as_bytes()?;
        // Eight-byte words keep every element type aligned.
        let mut words = memory::zeroed::<u64>(content.len().div_ceil(8))?;
        bytemuck::cast_slice_mut(&mut words)[..content.len()].copy_from_slice(content);
        Tensor::from_words(self.ty.clone(), words)
    }

    /// The same elements with another shape. Copies only if the view is strided.
    pub fn reshape(&self, shape: impl Into<Shape>) -> Result<Tensor, TensorError> {
        let shape = shape.into();
        let expected = shape.checked_len()?;
        if expected != self.elements() {
            return Err(TensorError::Length { shape, expected, found: self.elements() });
        }
        let mut result = if self.is_contiguous() { self.clone() } else { self.to_contiguous()? };
        result.strides = contiguous_strides(&shape);
        result.ty.shape = shape;
        Ok(result)
    }

    /// A view whose axis `i` is axis `axes[i]` of this tensor.
    pub fn permute(&self, axes: &[usize]) -> Result<Tensor, TensorError> {
        let mut seen = vec![false; self.ty.rank()];
        let valid = axes.len() == seen.len()
            && axes
                .iter()
                .all(|&axis| axis < seen.len() && !std::mem::replace(&mut seen[axis], true));
        if !valid {
            let rank = self.ty.rank();
            return Err(TensorError::Shape(format!("{axes:?} does not permute {rank} axes")));
        }
        let mut result = self.clone();
        result.ty.shape = axes.iter().map(|&axis| self.ty.shape[axis]).collect();
        result.strides = axes.iter().map(|&axis| self.strides[axis]).collect();
        Ok(result)
    }

    /// A view of `range` along one axis.
    pub fn slice(&self, axis: usize, range: Range<usize>) -> Result<Tensor, TensorError> {
        let shape = &self.ty.shape;
        if axis >= shape.rank() || range.start > range.end || range.end > shape[axis] {
            return Err(TensorError::Shape(format!("{range:?} of axis {axis} is outside {shape}")));
        }
        let mut result = self.clone();
        if !range.is_empty() {
            result.offset += range.start * self.strides[axis] * self.dtype().size();
        }
        result.ty.shape[axis] = range.len();
        Ok(result)
    }

    /// A view of shape `shape` that repeats axes of length one and missing leading axes.
    pub fn broadcast_to(&self, shape: impl Into<Shape>) -> Result<Tensor, TensorError> {
        let shape = shape.into();
        if self.ty.shape.broadcast(&shape).as_ref() != Some(&shape) {
            return Err(TensorError::Shape(format!(
                "{} does not broadcast to {shape}",
                self.ty.shape
            )));
        }
        let missing = shape.rank() - self.ty.rank();
        let mut result = self.clone();
        result.strides = (0..shape.rank())
            .map(|axis| match axis.checked_sub(missing) {
                Some(own) if self.ty.shape[own] == shape[axis] => self.strides[own],
                Some(_) | None => 0,
            })
            .collect();
        result.ty.shape = shape;
        Ok(result)
    }

    /// A view with another shape and strides: element `index` is at `offset + Σ index[i] * strides[i]` elements from the first
    /// element of this tensor. Returns an error if the view exceeds the storage.
    pub fn strided(
        &self,
        shape: impl Into<Shape>,
        strides: Vec<usize>,
        offset: usize,
    ) -> Result<Tensor, TensorError> {
        let shape = shape.into();
        let elements = shape.checked_len()?;
        let available = (*self.storage).as_ref().len().saturating_sub(self.offset);
        let end = shape.iter().zip(&strides).try_fold(offset, |end, (&length, &stride)| {
            end.checked_add(length.saturating_sub(1).checked_mul(stride)?)
        });
        let fits = end.is_some_and(|end| end < available / self.dtype().size());
        if strides.len() != shape.rank() || (elements > 0 && !fits) {
            let message = format!("strides {strides:?} from {offset} leave the tensor {}", self.ty);
            return Err(TensorError::Shape(message));
        }
        let offset = if elements > 0 { self.offset + offset * self.dtype().size() } else { 0 };
        let ty = TensorType::new(self.dtype(), shape);
        Ok(Tensor { ty, strides, offset, storage: self.storage.clone() })
    }

    fn expect_type(&self, expected: DType) -> Result<(), TensorError> {
        match self.dtype() {
            found if found == expected => Ok(()),
            found => Err(TensorError::Type { expected, found }),
        }
    }

    /// Offset of each element from the first, in elements, iterated in row-major order.
    fn element_offsets(&self) -> impl Iterator<Item = usize> + '_ {
        let mut index = vec![0usize; self.ty.rank()];
        let mut offset = 0;
        (0..self.elements()).map(move |_| {
            let current = offset;
            for axis in (0..index.len()).rev() {
                index[axis] += 1;
                offset += self.strides[axis];
                if index[axis] < self.ty.shape[axis] {
                    break;
                }
                offset -= self.strides[axis] * index[axis];
                index[axis] = 0;
            }
            current
        })
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor({}", self.ty)?;
        match self.to_f64_vec() {
            Ok(values) if values.len() <= 16 => write!(f, " {values:?})"),
            Ok(_) | Err(_) => f.write_str(")"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Bytes;

    fn counting(shape: &[usize]) -> Tensor {
        let elements: usize = shape.iter().product();
        Tensor::from_vec(shape, (0..elements).map(|i| i as f32).collect()).unwrap()
    }

    #[test]
    fn views_equal_their_copies() {
        let tensor = counting(&[2, 3, 4]);
        let view = tensor.permute(&[2, 0, 1]).unwrap().slice(0, 1..3).unwrap();
        assert!(!view.is_contiguous());
        assert_eq!(view.to_vec::<f32>().unwrap()[..6], [1.0, 5.0, 9.0, 13.0, 17.0, 21.0]);
        let copy = view.to_contiguous().unwrap();
        assert_eq!(copy.as_slice::<f32>().unwrap(), view.to_vec::<f32>().unwrap());
        assert_eq!(view.reshape([12]).unwrap().to_vec::<f32>(), view.to_vec::<f32>());
        let row = tensor.slice(0, 1..2).unwrap();
        assert_eq!(row.detached().unwrap().to_vec::<f32>(), row.to_vec::<f32>());
        assert!(row.shares_memory(&tensor) && !row.detached().unwrap().shares_memory(&tensor));
    }

    #[test]
    fn strided_views_stay_inside_the_bytes() {
        let column = counting(&[2, 3]).slice(1, 1..3).unwrap();
        let view = column.strided([2, 2], vec![1, 3], 0).unwrap();
        assert_eq!(view.to_vec::<f32>().unwrap(), [1.0, 4.0, 2.0, 5.0]);
        assert!(column.strided([2, 2], vec![2, 3], 0).is_err());
        assert!(column.strided([1], vec![1], 5).is_err());
        assert!(column.strided([2], vec![usize::MAX], 1).is_err());
        assert_eq!(column.strided([0, 4], vec![9, 9], 7).unwrap().elements(), 0);
    }

    #[test]
    fn broadcast_repeats_axes_of_length_one() {
        let tensor = counting(&[2, 1]).broadcast_to([3, 2, 2]).unwrap();
        let row = [0.0, 0.0, 1.0, 1.0];
        assert_eq!(tensor.to_vec::<f32>().unwrap(), [row, row, row].concat());
        assert!(counting(&[2, 3]).broadcast_to([3, 3]).is_err());
    }

    #[test]
    fn misaligned_elements_can_be_copied() {
        let mut bytes = vec![0u8];
        bytes.extend([1.0f32, 2.5].iter().flat_map(|x| x.to_ne_bytes()));
        let tensor = Tensor::from_bytes(TensorType::f32([2]), Arc::new(bytes), 1).unwrap();
        assert_eq!(tensor.to_vec::<f32>().unwrap(), [1.0, 2.5]);
        assert_eq!(tensor.to_contiguous().unwrap().as_slice::<f32>().unwrap(), [1.0, 2.5]);
    }

    #[test]
    fn release_passes_the_byte_range_of_the_view() {
        struct Watched(Vec<u8>, std::sync::Mutex<Vec<Range<usize>>>);
        impl AsRef<[u8]> for Watched {
            fn as_ref(&self) -> &[u8] {
                &self.0
            }
        }
        impl Bytes for Watched {
            fn release(&self, range: Range<usize>) {
                self.1.lock().unwrap().push(range);
            }
        }
        let watched = Arc::new(Watched(vec![0; 100], std::sync::Mutex::default()));
        let tensor = Tensor::from_bytes(TensorType::f32([4, 6]), watched.clone(), 4).unwrap();
        tensor.release();
        tensor.permute(&[1, 0]).unwrap().slice(0, 1..3).unwrap().release();
        tensor.slice(0, 2..2).unwrap().release();
        assert_eq!(*watched.1.lock().unwrap(), [4..100, 8..88]);
    }

    #[test]
    fn invalid_shapes_types_and_ranges_are_errors() {
        assert!(matches!(
            Tensor::from_vec([2, 2], vec![1.0f32]),
            Err(TensorError::Length { expected: 4, found: 1, .. })
        ));
        let tensor = counting(&[2, 2]);
        assert!(matches!(tensor.as_slice::<i64>(), Err(TensorError::Type { .. })));
        assert!(tensor.permute(&[0, 0]).is_err());
        assert!(tensor.slice(0, 1..3).is_err());
        assert!(Tensor::zeros(&TensorType::f32([usize::MAX, 2])).is_err());
        let bools =
            Tensor::from_bytes(TensorType::new(DType::Bool, [2]), Arc::new(vec![1u8, 7]), 0);
        assert_eq!(bools.unwrap().to_vec::<bool>(), Err(TensorError::InvalidBits(DType::Bool)));
    }

    #[test]
    fn casts_to_every_type_and_back() {
        let tensor = Tensor::from_vec([3], vec![0.0f32, 1.0, 2.0]).unwrap();
        for dtype in DType::ALL {
            let back = tensor.cast(dtype).unwrap().cast(DType::F32).unwrap();
            let expected = if dtype == DType::Bool { [0.0, 1.0, 1.0] } else { [0.0, 1.0, 2.0] };
            assert_eq!(back.to_vec::<f32>().unwrap(), expected, "{dtype}");
        }
    }
}
