//! The IR: ops, graph, builder, verifier, printer, passes, memory plan and the `Backend` trait.
