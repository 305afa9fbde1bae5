//! Random graphs: every pass keeps the result and verifies; memory plans never overlap.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use cutout_graph::passes::{Context, PIPELINE, optimize};
use cutout_graph::plan::{self, Action, Buffer, Home, PlainRules, Plan, Rules, Source};
use cutout_graph::{Graph, Kind, Layout, Node, NodeId, Op, Profile, interpret_in, verify};
use cutout_tensor::{Tolerance, compare};
use cutout_testing::{RandomGraph, compare_outputs};

const GRAPHS: u64 = 400;

#[test]
fn every_pass_keeps_the_result() {
    let mut changed = vec![0; PIPELINE.len()];
    let profile = Profile::default();
    for seed in 0..GRAPHS {
        let sample = RandomGraph::new(seed).unwrap();
        let inputs = sample.named_inputs();
        let expected = interpret_in::<f64>(&sample.graph, &sample.weights, &inputs).unwrap();
        let context = Context::new(Some(&sample.weights), &profile);
        let mut graph = sample.graph.clone();
        for (number, pass) in PIPELINE.iter().enumerate() {
            // Alone on the graph as it was built, and in its place behind the others.
            for before in [sample.graph.clone(), graph.clone()] {
                let what = format!("seed {seed}, {}", pass.name);
                let after = (pass.run)(&before, &context).unwrap();
                verify(&after).unwrap_or_else(|error| panic!("{what}: {error}\n{before}{after}"));
                let actual = interpret_in::<f64>(&after, &sample.weights, &inputs).unwrap();
                compare_outputs(&actual, &expected, Tolerance::Rounding)
                    .unwrap_or_else(|error| panic!("{what}: {error}\n{before}\nbecomes\n{after}"));
                changed[number] += usize::from(after.to_string() != before.to_string());
                graph = after;
            }
        }
    }
    // Quantisation changes the numbers, so it is off unless a profile asks for it; it has a test of its own.
    for (pass, changed) in
        PIPELINE.iter().zip(changed).filter(|(pass, _)| pass.name != "quantize_weights")
    {
        assert!(changed > 20, "{} changed only {changed} graphs: too few to test it", pass.name);
    }
}

/// Rules that allow as much as any kernel can.
struct PermissiveRules;

impl Rules for PermissiveRules {
    fn reads_strided(&self, _: &Graph, node: NodeId, _: usize, _: &Layout) -> bool {
        node.0.is_multiple_of(2)
    }
    fn overwrites(&self, graph: &Graph, node: NodeId, index: usize) -> bool {
        graph.input_types(node)[index] == graph.ty(node)
    }
}

fn check_plan(plan: &Plan, what: &str) {
    let in_arena: Vec<(usize, &Buffer)> = plan
        .buffers
        .iter()
        .filter_map(|buffer| match buffer.home {
            Home::Arena(offset) => Some((offset, buffer)),
            Home::Own => None,
        })
        .collect();
    for (i, (offset, a)) in in_arena.iter().enumerate() {
        assert!(offset % plan::ALIGNMENT == 0 && offset + a.bytes <= plan.arena_bytes, "{what}");
        for (other, b) in &in_arena[i + 1..] {
            let together = a.first <= b.last && b.first <= a.last;
            let apart = offset + a.bytes <= *other || other + b.bytes <= *offset;
            assert!(!together || apart || a.bytes * b.bytes == 0, "{what}: {a:?} {b:?}");
        }
    }
}

/// Replays a plan with the name of each value in the buffer that holds it: every read must find what it expects,
/// also after results were written over their inputs.
fn replay(graph: &Graph, plan: &Plan, what: &str) {
    let mut content: Vec<Option<NodeId>> = vec![None; plan.buffers.len()];
    // The value whose memory a node's value lies in: its own, or that of the value it is a view of.
    let owner = |mut id: NodeId, computed: &[bool]| {
        while !computed[id.0] && graph.op(id).is_some() {
            id = graph.node(id).inputs[0];
        }
        id
    };
    let mut computed = vec![false; graph.nodes().len()];
    for step in &plan.steps {
        if let Action::Compute(id) = step.action {
            computed[id.0] = true;
        }
    }
    let mut copies: Vec<(usize, NodeId)> = Vec::new();
    for (number, step) in plan.steps.iter().enumerate() {
        let read = match step.action {
            Action::Compute(id) => graph.node(id).inputs.clone(),
            Action::Copy(id) => vec![id],
        };
        assert_eq!(step.inputs.len(), read.len(), "{what}: step {number}");
        for (operand, id) in step.inputs.iter().zip(read) {
            let Source::Buffer(buffer) = operand.source else { continue };
            let expected = owner(id, &computed);
            let is_copy = copies.contains(&(buffer, id));
            assert!(
                is_copy || content[buffer] == Some(expected),
                "{what}: step {number} reads {id} from buffer {buffer}, which holds {:?}",
                content[buffer]
            );
        }
        copies.retain(|(buffer, _)| *buffer != step.output);
        match step.action {
            Action::Compute(id) => content[step.output] = Some(id),
            Action::Copy(id) => {
                content[step.output] = None;
                copies.push((step.output, id));
            }
        }
    }
}

#[test]
fn plans_never_overlap_and_never_lose_a_value() {
    let mut in_place = 0;
    let mut copies = 0;
    for seed in 0..GRAPHS {
        let sample = RandomGraph::new(seed).unwrap();
        let profile = Profile::default();
        let context = Context::new(Some(&sample.weights), &profile);
        let optimized = optimize(&sample.graph, &[], &context).unwrap();
        for graph in [&sample.graph, &optimized] {
            for rules in [&PlainRules as &dyn Rules, &PermissiveRules] {
                let plan = plan::plan(graph, rules);
                let what = format!("seed {seed}\n{graph}{plan}");
                check_plan(&plan, &what);
                replay(graph, &plan, &what);
                in_place += plan.steps.iter().filter(|step| step.in_place.is_some()).count();
                let is_copy = |step: &&plan::Step| matches!(step.action, Action::Copy(_));
                copies += plan.steps.iter().filter(is_copy).count();
            }
        }
    }
    assert!(
        in_place > 500 && copies > 500,
        "{in_place} in place, {copies} copies: too few to test them"
    );
}

#[test]
fn quantised_layers_stay_close_and_are_shared() {
    let profile = Profile::parse("[parts]\n\"layer\" = \"int8\"").unwrap();
    let mut quantised = 0;
    for seed in 0..GRAPHS / 4 {
        let sample = RandomGraph::new(seed).unwrap();
        let context = Context::new(Some(&sample.weights), &profile);
        let optimized = optimize(&sample.graph, &[], &context).unwrap();
        let is_quantised =
            |(_, node): &(NodeId, &Node)| matches!(node.kind, Kind::Op(Op::QuantizedLinear(_)));
        quantised += optimized.iter().filter(is_quantised).count();
        let linear = |(_, node): (NodeId, &Node)| matches!(node.kind, Kind::Op(Op::Linear(_)));
        assert!(!optimized.iter().any(linear), "seed {seed}: a linear layer was left\n{optimized}");
        let inputs = sample.named_inputs();
        let exact = interpret_in::<f64>(&sample.graph, &sample.weights, &inputs).unwrap();
        let rough = interpret_in::<f64>(&optimized, &sample.weights, &inputs).unwrap();
        assert_eq!(rough.len(), exact.len(), "seed {seed}");
        for ((name, rough), (exact_name, exact)) in rough.iter().zip(&exact) {
            assert_eq!(name, exact_name, "seed {seed}");
            let error =
                compare(rough, exact, Tolerance::HalfPrecision).unwrap().normalised_square_error;
            assert!(error < 0.02, "seed {seed}: output {name} is off by {error}");
        }
    }
    assert!(quantised > 100, "only {quantised} layers");
}
