//! Tests of the help: every command has examples, and every argument is explained. What the flags do is tested in
//! tests/flags.rs.

use clap::{Command, CommandFactory};

use crate::Arguments;

/// The commands that a user can call.
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
        assert_eq!(wrapped, None, "cutout {name}: a wrapped example cannot be copied");
        assert!(
            after.contains(&call) || after.contains(&only),
            "cutout {name}: no example calls it"
        );
    }
}

#[test]
fn every_argument_is_explained() {
    for command in commands() {
        for argument in command.get_arguments() {
            let (name, id) = (command.get_name(), argument.get_id());
            assert!(argument.get_help().is_some(), "cutout {name}: {id} has no help");
        }
    }
}
