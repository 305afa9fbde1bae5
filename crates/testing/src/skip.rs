//! Tests that cannot run on a machine say so.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};

/// Reasons that this program gave already.
static GIVEN: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Says on the terminal which test program leaves out tests and why, once for each reason. `cargo xtask ci` repeats these lines at its end.
/// What `eprintln!` writes is held back when a test passes; this is not.
pub fn skip(reason: &str) {
    if GIVEN.lock().unwrap_or_else(PoisonError::into_inner).insert(reason.to_owned()) {
        // A closed terminal is no reason to fail.
        let _ignored = writeln!(io::stderr(), "SKIPPED in {}: {reason}", program());
    }
}

/// Name of this test program, without the hash that cargo adds.
fn program() -> String {
    let path = std::env::current_exe().unwrap_or_default();
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    name.rsplit_once('-').map_or(&*name, |(name, _)| name).to_owned()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::skip;

    #[test]
    #[ignore = "run by the test below"]
    fn leaves_something_out() {
        skip("a reason");
        skip("a reason");
        skip("another reason");
    }

    #[test]
    fn a_skipped_test_is_heard_although_it_passes() {
        let own = std::env::current_exe().unwrap();
        let name = "skip::tests::leaves_something_out";
        let run = Command::new(own).args([name, "--exact", "--ignored"]).output().unwrap();
        assert!(run.status.success(), "{run:?}");
        let said = String::from_utf8(run.stderr).unwrap();
        let lines: Vec<&str> = said.lines().collect();
        let program = "SKIPPED in cutout_testing:";
        assert_eq!(lines, [format!("{program} a reason"), format!("{program} another reason")]);
    }
}
