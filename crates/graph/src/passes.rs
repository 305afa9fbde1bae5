//! The passes, in the order they run: each a function from graph to graph that keeps the result.
//!
//! A pass may not depend on the order of nodes beyond "inputs come first". Tests check every pass in two ways: its
//! result verifies, and random graphs give the same numbers before and after.

mod absorb_projections;
mod common_subexpressions;
mod draft;
mod fold_constants;
mod fuse_elementwise;
mod fuse_epilogues;
mod quantize_weights;
mod simplify_layout;
mod sink_reshapes;

use std::cell::RefCell;

use crate::graph::Graph;
use crate::{CompileError, Profile, Weights};

pub(crate) use draft::{Draft, rewrite};

/// A named rewrite of the whole graph.
pub struct Pass {
    /// Name in profiles and for `explain --after`.
    pub name: &'static str,
    /// What it does, in one line.
    pub summary: &'static str,
    /// The rewrite.
    pub run: fn(&Graph, &Context<'_>) -> Result<Graph, CompileError>,
}

/// What passes may read, and the notes they write.
pub struct Context<'a> {
    /// The weights. Without them no expression of weights is folded.
    pub weights: Option<&'a Weights>,
    /// How the graph is compiled.
    pub profile: &'a Profile,
    notes: RefCell<Vec<String>>,
}

impl<'a> Context<'a> {
    /// A context over these weights.
    pub fn new(weights: Option<&'a Weights>, profile: &'a Profile) -> Self {
        Context { weights, profile, notes: RefCell::default() }
    }

    /// The fusions that passes made, and those they could not make with the reason.
    pub fn notes(&self) -> Vec<String> {
        self.notes.borrow().clone()
    }

    fn note(&self, text: String) {
        self.notes.borrow_mut().push(text);
    }
}

/// All passes, in the order they run.
pub const PIPELINE: &[Pass] = &[
    Pass {
        name: "fold_constants",
        summary: "computes what depends only on weights and constants",
        run: fold_constants::run,
    },
    Pass {
        name: "quantize_weights",
        summary: "turns weights into bytes where the profile asks for it",
        run: quantize_weights::run,
    },
    Pass {
        name: "absorb_projections",
        summary: "projects the few tokens of an attention instead of the many",
        run: absorb_projections::run,
    },
    Pass {
        name: "simplify_layout",
        summary: "merges and drops reshapes, permutes, slices and broadcasts",
        run: simplify_layout::run,
    },
    Pass {
        name: "common_subexpressions",
        summary: "computes equal expressions once",
        run: common_subexpressions::run,
    },
    Pass {
        name: "sink_reshapes",
        summary: "moves reshapes and permutes behind elementwise ops",
        run: sink_reshapes::run,
    },
    Pass {
        name: "fuse_epilogues",
        summary: "moves scale, bias, activation and residual into the product before them",
        run: fuse_epilogues::run,
    },
    Pass {
        name: "fuse_elementwise",
        summary: "turns chains of elementwise ops into one loop",
        run: fuse_elementwise::run,
    },
    Pass {
        name: "remove_dead_code",
        summary: "drops what no output needs",
        run: |graph, _| Ok(remove_dead_code(graph)),
    },
];

/// Runs every shared pass, then those of a backend; a profile may switch passes off. Debug builds verify after each.
pub fn optimize(
    graph: &Graph,
    backend: &[Pass],
    context: &Context<'_>,
) -> Result<Graph, CompileError> {
    optimize_until(graph, backend, context, None)
}

/// Runs the passes up to and including the one named `last`, or all.
pub fn optimize_until(
    graph: &Graph,
    backend: &[Pass],
    context: &Context<'_>,
    last: Option<&str>,
) -> Result<Graph, CompileError> {
    let mut graph = graph.clone();
    for pass in PIPELINE.iter().chain(backend) {
        if context.profile.runs(pass.name) {
            graph = (pass.run)(&graph, context)?;
            if cfg!(debug_assertions) {
                crate::verify(&graph)?;
            }
        }
        if last == Some(pass.name) {
            break;
        }
    }
    Ok(graph)
}

/// Which nodes some output depends on. Inputs always count: a program takes what the model declares.
pub(crate) fn reachable(graph: &Graph) -> Vec<bool> {
    let mut used = vec![false; graph.nodes().len()];
    for (_, id) in graph.outputs() {
        used[id.0] = true;
    }
    for (_, id) in graph.inputs() {
        used[id.0] = true;
    }
    for (id, node) in graph.iter().rev() {
        if used[id.0] {
            for input in &node.inputs {
                used[input.0] = true;
            }
        }
    }
    used
}

/// Drops every node that no output depends on; run-time inputs stay.
///
/// ```text
/// %0 = input "x" : f32[4]                            %0 = input "x" : f32[4]
/// %1 = Unary { kind: Exp } %0 : f32[4]         →
/// %2 = Unary { kind: Relu } %0 : f32[4]              %1 = Unary { kind: Relu } %0 : f32[4]
/// return y = %2                                      return y = %1
/// ```
pub(crate) fn remove_dead_code(graph: &Graph) -> Graph {
    let used = reachable(graph);
    let mut draft = Draft::new(graph);
    for (id, _) in graph.iter().filter(|(id, _)| used[id.0]) {
        draft.keep(id);
    }
    draft.finish()
}
