//! Model layouts.
