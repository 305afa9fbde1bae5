//! A report of how a graph is compiled: the graph after any pass, what was fused and what was not, the memory plan,
//! arithmetic and bytes per op.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::passes::{Context, PIPELINE, Pass, optimize_until};
use crate::plan::{Rules, plan};
use crate::{CompileError, Cost, Graph};

/// What to explain.
pub struct Question<'a> {
    /// The graph as the model built it.
    pub graph: &'a Graph,
    /// What the backend's kernels can do with memory.
    pub rules: &'a dyn Rules,
    /// The backend's own passes.
    pub passes: &'a [Pass],
    /// The pass after which to print; all of them when absent.
    pub after: Option<&'a str>,
}

/// The report, as text.
pub fn explain(question: &Question<'_>, context: &Context<'_>) -> Result<String, CompileError> {
    let own = question.passes;
    let known: Vec<&str> = PIPELINE.iter().chain(own).map(|pass| pass.name).collect();
    if let Some(unknown) = question.after.filter(|name| !known.contains(name)) {
        return Err(CompileError::Unsupported {
            op: format!("explain --after {unknown}"),
            reason: format!("the passes are {}", known.join(", ")),
        });
    }
    let graph = optimize_until(question.graph, own, context, question.after)?;
    let mut text = String::new();
    section(&mut text, "profile", context.profile.to_toml().trim_end());
    let last = question.after.unwrap_or("all passes");
    section(&mut text, &format!("graph after {last}"), graph.to_string().trim_end());
    section(&mut text, "fusion", &notes(&context.notes()));
    section(&mut text, "cost", &costs(&graph));
    section(&mut text, "memory plan", plan(&graph, question.rules).to_string().trim_end());
    Ok(text)
}

fn section(text: &mut String, title: &str, body: &str) {
    writeln!(text, "== {title} ==\n{body}\n").expect("writing to a string cannot fail");
}

/// The notes of the passes, equal ones counted.
fn notes(notes: &[String]) -> String {
    if notes.is_empty() {
        return "nothing fused".to_owned();
    }
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for note in notes {
        *counts.entry(note).or_default() += 1;
    }
    let line = |(note, count): (&&str, &usize)| match count {
        1 => (*note).to_owned(),
        many => format!("{note} ({many} times)"),
    };
    counts.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Arithmetic and bytes by kind of op, the most expensive first.
fn costs(graph: &Graph) -> String {
    let mut kinds: BTreeMap<&str, (usize, Cost)> = BTreeMap::new();
    for (id, _) in graph.iter() {
        let Some(op) = graph.op(id) else { continue };
        let cost = graph.cost(id);
        let (count, sum) = kinds.entry(op.name()).or_default();
        *count += 1;
        sum.flops = sum.flops.saturating_add(cost.flops);
        sum.bytes = sum.bytes.saturating_add(cost.bytes);
    }
    let mut rows: Vec<(&str, (usize, Cost))> = kinds.into_iter().collect();
    rows.sort_by_key(|(_, (_, cost))| std::cmp::Reverse((cost.flops, cost.bytes)));
    let mut text = format!("{:<18}{:>6}{:>14}{:>14}\n", "op", "count", "MFLOP", "MB");
    let mut total = (0, Cost::default());
    let mut line = |name: &str, count: usize, cost: Cost| {
        let (flops, bytes) = (cost.flops as f64 / 1e6, cost.bytes as f64 / 1e6);
        writeln!(text, "{name:<18}{count:>6}{flops:>14.3}{bytes:>14.3}").expect("a string grows");
    };
    for (name, (count, cost)) in rows {
        line(name, count, cost);
        total.0 += count;
        total.1.flops = total.1.flops.saturating_add(cost.flops);
        total.1.bytes = total.1.bytes.saturating_add(cost.bytes);
    }
    line("total", total.0, total.1);
    text.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::PlainRules;
    use crate::{Builder, Profile};
    use cutout_tensor::DType;

    #[test]
    fn an_explanation_names_what_fused_and_what_it_costs() {
        let builder = Builder::new();
        let x = builder.input("x", DType::F32, [9, 6]);
        let scope = builder.weights().at("mlp");
        let sum = x.linear(scope.parameter("weight", [8, 6])) + scope.parameter("bias", [8]);
        builder.output("y", sum.gelu());
        builder.output("sum", sum);
        let graph = builder.finish().unwrap();
        let profile = Profile::default();
        let question = |after| Question { graph: &graph, rules: &PlainRules, passes: &[], after };
        let text = explain(&question(None), &Context::new(None, &profile)).unwrap();
        assert!(text.contains("fused: Binary { kind: Add } into linear at "), "{text}");
        assert!(text.contains("kept apart: Unary { kind: Gelu } behind linear"), "{text}");
        assert!(text.contains("arena: "), "{text}");
        assert!(text.contains("linear                 1"), "{text}");
        let before =
            explain(&question(Some("fold_constants")), &Context::new(None, &profile)).unwrap();
        assert!(before.contains("Binary { kind: Add } %"), "{before}");
        assert!(explain(&question(Some("fuse_all")), &Context::new(None, &profile)).is_err());
    }
}
