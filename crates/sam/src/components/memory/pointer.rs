//! Object pointers: one vector per object and frame, read from more frames than memories are.

use cutout_graph::{Scope, Value};

use crate::components::layers::head;

/// The pointers of tokens `[objects, width]` of chosen masks; for an object whose score `[objects]` is not above 0, the
/// learnt pointer of hidden objects.
pub(crate) fn pointer<'g>(token: Value<'g>, score: Value<'g>, w: &Scope<'g>) -> Value<'g> {
    let [objects, width] = token.dims();
    let made = head(token, &w.at("obj_ptr_proj"), &[width, width, width]);
    let hidden = w.parameter("no_obj_ptr", [1, width]);
    let visible = score.greater(token.builder().scalar(0.0)).reshape([objects, 1]);
    visible.select(made, hidden)
}
