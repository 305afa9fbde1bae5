//! Handles to the nodes of a graph being built. Each op adds its own builder method to `Value`, in the op's file.

mod arithmetic;

use cutout_tensor::{Shape, TensorType};

use crate::graph::NodeId;
use crate::{Builder, Op};

/// Handle to a value of the graph being built.
#[derive(Clone, Copy)]
pub struct Value<'g> {
    builder: &'g Builder,
    id: NodeId,
}

impl<'g> Value<'g> {
    pub(crate) fn new(builder: &'g Builder, id: NodeId) -> Self {
        Value { builder, id }
    }

    pub(crate) fn id(self) -> NodeId {
        self.id
    }

    /// The builder this value belongs to.
    pub fn builder(self) -> &'g Builder {
        self.builder
    }

    /// Element type and shape.
    pub fn ty(self) -> TensorType {
        self.builder.ty(self.id)
    }

    /// Lengths of the axes.
    pub fn shape(self) -> Shape {
        self.ty().shape
    }

    /// The axes as an array. A value of another rank is a build error; the result is then all ones.
    #[track_caller]
    pub fn dims<const N: usize>(self) -> [usize; N] {
        let ty = self.ty();
        match <[usize; N]>::try_from(&ty.shape[..]) {
            Ok(axes) => axes,
            Err(_) => {
                self.builder.fail(format!("expected {N} axes, got {ty}"));
                [1; N]
            }
        }
    }

    /// Names this value as a stage of the model and returns it; see [`Builder::finish_with_stages`].
    pub fn stage(self, name: &str) -> Value<'g> {
        self.builder.stage(name, self);
        self
    }

    /// Adds any op with this value as its first input.
    #[track_caller]
    pub fn apply(self, op: impl Into<Op>, others: &[Value<'g>]) -> Value<'g> {
        let inputs: Vec<Value<'g>> = std::iter::once(self).chain(others.iter().copied()).collect();
        self.builder.op(op, &inputs)
    }
}

/// Whether axes that were reduced to one number stay, with length one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduced {
    /// The axes stay, with length one.
    Keep,
    /// The axes are removed.
    Drop,
}

#[cfg(test)]
mod tests {
    use cutout_tensor::DType;

    use super::*;

    fn failure(model: impl for<'g> Fn(Value<'g>) -> Vec<Value<'g>>) -> String {
        let builder = Builder::new();
        model(builder.input("x", DType::F32, [6, 2]));
        builder.finish().unwrap_err().message
    }

    #[test]
    fn parts_of_an_axis() {
        let builder = Builder::new();
        let x = builder.input("x", DType::F32, [2, 6, 5]);
        let halves: [Value<'_>; 3] = x.split(1);
        assert!(halves.iter().all(|half| half.shape()[..] == [2, 2, 5]));
        let [first, second] = x.unstack(0);
        assert_eq!(second.shape()[..], [6, 5]);
        let joined = Value::concat(&[first, second, first], 1).transposed();
        assert_eq!(joined.shape()[..], [15, 6]);
        assert_eq!(joined.max([0], Reduced::Keep).shape()[..], [1, 6]);
        assert_eq!(joined.max([0], Reduced::Drop).less(joined).ty(), joined.equal(joined).ty());
        assert!(builder.finish().is_ok());
    }

    #[test]
    fn wrong_parts_are_errors_of_the_model() {
        let split = failure(|x| x.split::<4>(0).into());
        assert_eq!(split, "axis 0 of f32[6, 2] has no 4 equal parts");
        let nowhere = failure(|x| x.split::<2>(7).into());
        assert_eq!(nowhere, "f32[6, 2] has no 2 parts along axis 7");
        assert_eq!(failure(|x| x.split::<0>(0).into()), "f32[6, 2] has no 0 parts along axis 0");
        let unstack = failure(|x| x.unstack::<3>(0).into());
        assert_eq!(unstack, "axis 0 of f32[6, 2] has not length 3");
        assert_eq!(failure(|x| vec![x.slice(2, 0..1)]), "slice axis 2 is outside f32[6, 2]");
        let flat = failure(|x| vec![x.reshape([12]).transposed()]);
        assert_eq!(flat, "transposed needs two axes, got f32[12]");
        let _: [Value<'_>; 1] = Builder::new().scalar(1.0).reshape([2]).split(0); // after an error
    }
}
