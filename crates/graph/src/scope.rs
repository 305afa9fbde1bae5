//! A position in the checkpoint's tree of weights.

use std::fmt::Display;

use cutout_tensor::Shape;

use crate::{Builder, Value};

/// A position in the checkpoint's tree: `w.at("blocks").at(3).at("attn")`.
#[derive(Clone)]
pub struct Scope<'g> {
    builder: &'g Builder,
    path: String,
}

impl<'g> Scope<'g> {
    pub(crate) fn root(builder: &'g Builder) -> Self {
        Scope { builder, path: String::new() }
    }

    /// The child of this name or number. Dots separate several levels.
    pub fn at(&self, child: impl Display) -> Scope<'g> {
        let path =
            if self.path.is_empty() { child.to_string() } else { format!("{}.{child}", self.path) };
        Scope { builder: self.builder, path }
    }

    /// Declares a weight with the shape that the architecture requires.
    #[track_caller]
    pub fn parameter(&self, name: &str, shape: impl Into<Shape>) -> Value<'g> {
        self.builder.parameter(&self.at(name).path, shape.into())
    }

    /// Names `value` as the stage of this position, with `part` behind the path unless it is empty.
    pub fn stage(&self, part: &str, value: Value<'g>) -> Value<'g> {
        let name = if part.is_empty() { self.path.clone() } else { self.at(part).path };
        value.stage(&name)
    }

    /// The dotted path of this position.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The builder that weights are declared in.
    pub fn builder(&self) -> &'g Builder {
        self.builder
    }
}
