//! Parts of the kernel on their own.
