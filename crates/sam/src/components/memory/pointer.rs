//! Object pointers: one vector per object and frame, read from more frames than memories are.

use cutout_graph::{Scope, Value};

use crate::components::layers::{head, linear};
use crate::model::config::MemoryForm;

/// Where the token of a pointer comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pointed {
    /// From the answer to a prompt.
    ByUser,
    /// From a frame on which the object is followed.
    ByTracker,
}

/// The pointers of tokens `[objects, width]` of chosen masks, hidden where the object's score `[objects]` is not above 0.
pub(crate) fn pointer<'g>(
    token: Value<'g>,
    score: Value<'g>,
    by: Pointed,
    w: &Scope<'g>,
    form: MemoryForm,
) -> Value<'g> {
    let [_, width] = token.dims();
    let prefix = match by {
        Pointed::ByUser => form.prompted(),
        Pointed::ByTracker => "",
    };
    let made = head(token, &w.at(format!("{prefix}obj_ptr_proj")), &[width, width, width]);
    hidden_unless(score, made, w, form)
}

/// Pointers `[objects, width]`, and those of hidden objects where a score `[objects]` is not above 0.
pub(crate) fn hidden_unless<'g>(
    score: Value<'g>,
    pointers: Value<'g>,
    w: &Scope<'g>,
    form: MemoryForm,
) -> Value<'g> {
    let [objects, width] = pointers.dims();
    let hidden = match form {
        MemoryForm::Sam2 | MemoryForm::Sam2_1 | MemoryForm::Sam3 => {
            w.parameter("no_obj_ptr", [1, width])
        }
        MemoryForm::Sam3_1 => linear(pointers, &w.at("no_obj_ptr_linear"), width),
    };
    let visible = score.greater(score.builder().scalar(0.0)).reshape([objects, 1]);
    visible.select(pointers, hidden)
}
