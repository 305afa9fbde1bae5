//! Developer tasks: ci, bench, explain, fixtures, deps, size, licences.
fn main() {}
