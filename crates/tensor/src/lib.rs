//! Element types, shapes, strides, host tensors, and comparison with named tolerances.
