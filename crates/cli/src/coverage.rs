//! Every command has examples and a file of tests, and every flag of it is used there.

use std::path::Path;

use clap::{Arg, Command, CommandFactory};

use crate::Arguments;

/// A file of this crate's tests.
fn tests(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Whether a text has a flag in it, and not only one that starts the same.
fn mentions(text: &str, flag: &str) -> bool {
    let goes_on = |rest: &str| rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '-');
    text.match_indices(flag).any(|(at, _)| !goes_on(&text[at + flag.len()..]))
}

/// The commands a user may call, as `cutout COMMAND` understands them.
fn commands() -> Vec<Command> {
    let mut root = Arguments::command();
    root.build();
    root.get_subcommands().filter(|command| command.get_name() != "help").cloned().collect()
}

#[test]
fn every_command_has_examples() {
    for command in commands() {
        let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let name = command.get_name();
        let call = format!("\n  cutout {name} ");
        let only = format!("\n  cutout {name}\n");
        assert!(after.starts_with("Examples:"), "cutout {name} --help has no examples");
        let wrapped = after.lines().find(|line| line.chars().count() > 98);
        assert_eq!(wrapped, None, "cutout {name}: an example that is wrapped cannot be copied");
        assert!(after.contains(&call) || after.contains(&only), "cutout {name}: of itself");
    }
}

#[test]
fn every_flag_is_explained_and_tested() {
    let own = |argument: &&Arg| !matches!(argument.get_id().as_str(), "help" | "version");
    let mut untested = Vec::new();
    for command in commands() {
        let name = command.get_name();
        assert!(
            tests("cli.rs").contains(&format!("mod {name};")),
            "tests/{name}.rs is not compiled"
        );
        let text = tests(&format!("{name}.rs"));
        for argument in command.get_arguments().filter(own) {
            assert!(
                argument.get_help().is_some(),
                "cutout {name}: {} has no help",
                argument.get_id()
            );
            let flag = argument.get_long().map(|long| format!("--{long}"));
            untested.extend(
                flag.filter(|flag| !mentions(&text, flag)).map(|flag| format!("{name} {flag}")),
            );
        }
    }
    assert!(untested.is_empty(), "no test uses: {}", untested.join(", "));
}

#[test]
fn a_longer_flag_is_another_flag() {
    assert!(mentions("[\"--point\", \"3,4\"]", "--point"));
    assert!(!mentions("--points-per-side", "--point"));
    assert!(!mentions("--mask-threshold", "--mask"));
}
