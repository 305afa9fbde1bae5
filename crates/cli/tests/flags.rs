//! Every flag of every command has a test that fails when the program ignores the flag.
//!
//! The table below names that test for each flag that `cutout COMMAND --help` lists. The check runs the test again
//! with the flag left out of all command lines, which is what a program that ignores it would see, and the test must fail.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::panic::catch_unwind;

use crate::support::folder;

/// A flag of a command, as its help shows it.
#[derive(Clone, Debug)]
struct Flag {
    command: String,
    /// `--point`.
    long: String,
    /// `-p`, where there is one.
    short: Option<String>,
    takes_value: bool,
}

thread_local! {
    /// The flag that commands started by this thread do not get to see.
    static IGNORED: RefCell<Option<Flag>> = const { RefCell::new(None) };
}

/// The arguments of a command without the flag that is being ignored.
pub(crate) fn without_ignored<'a>(arguments: &[&'a str]) -> Vec<&'a str> {
    IGNORED.with_borrow(|ignored| {
        let Some(flag) = ignored.as_ref().filter(|flag| arguments.first() == Some(&&*flag.command))
        else {
            return arguments.to_vec();
        };
        let mut rest = arguments.iter();
        let mut kept = Vec::new();
        while let Some(argument) = rest.next() {
            if *argument != flag.long && flag.short.as_deref() != Some(*argument) {
                kept.push(*argument);
            } else if flag.takes_value {
                rest.next();
            }
        }
        kept
    })
}

/// The flags that the help of a command lists: lines as `  -p, --point <X,Y>` and `      --json  Print ...`.
fn flags(command: &str) -> Vec<Flag> {
    let help = folder().cutout(&[command, "--help"]).succeeds();
    let flag = |line: &str| {
        let (before, after) = line.split_at_checked(6)?;
        let name = after.strip_prefix("--")?.split([' ', '.']).next()?;
        let short = before.trim().strip_suffix(',').map(str::to_owned);
        if !before.trim().is_empty() && short.is_none() {
            return None;
        }
        let takes_value = after[2 + name.len()..].starts_with(" <");
        let (command, long) = (command.to_owned(), format!("--{name}"));
        Some(Flag { command, long, short, takes_value })
    };
    let own = |flag: &Flag| !["--help", "--version"].contains(&&*flag.long);
    help.lines().filter_map(flag).filter(own).collect()
}

/// Whether a test fails when a flag is ignored.
fn notices(test: fn(), flag: &Flag) -> bool {
    IGNORED.set(Some(flag.clone()));
    let outcome = catch_unwind(test);
    IGNORED.set(None);
    outcome.is_err()
}

/// Checks that `tests` has one entry for each flag of a command, and that each test notices its flag.
fn check(command: &str, tests: &[(&str, fn())]) {
    let flags = flags(command);
    let listed: BTreeSet<&str> = tests.iter().map(|(flag, _)| *flag).collect();
    let existing: BTreeSet<&str> = flags.iter().map(|flag| &*flag.long).collect();
    assert_eq!(listed, existing, "cutout {command}: the flags in the table and in the help");
    for flag in &flags {
        let (_, test) = tests.iter().find(|(name, _)| *name == flag.long).unwrap();
        let name = &flag.long;
        assert!(notices(*test, flag), "cutout {command} {name}: its test passes without the flag");
    }
}

/// Makes one check for each command.
macro_rules! flag_tests {
    ($($command:ident { $($flag:literal => $test:path,)* })*) => {
        const COMMANDS: &[&str] = &[$(stringify!($command)),*];
        $(#[test]
        fn $command() {
            check(stringify!($command), &[$(($flag, $test)),*]);
        })*
    };
}

flag_tests! {
    segment {
        "--model" => crate::segment::a_saved_scene_replaces_the_encoder,
        "--point" => crate::segment::points_boxes_and_candidates,
        "--box" => crate::segment::points_boxes_and_candidates,
        "--mask-input" => crate::segment::raw_tensors_can_be_fed_back,
        "--normalized" => crate::segment::points_boxes_and_candidates,
        "--multimask" => crate::segment::points_boxes_and_candidates,
        "--text" => crate::segment::phrases_find_objects,
        "--exemplar" => crate::segment::exemplars_and_semantic_masks,
        "--semantic" => crate::segment::exemplars_and_semantic_masks,
        "--mask-nms-thresh" => crate::segment::exemplars_and_semantic_masks,
        "--threshold" => crate::segment::thresholds_drop_masks_and_pixels,
        "--mask-threshold" => crate::segment::thresholds_drop_masks_and_pixels,
        "--scene" => crate::segment::a_saved_scene_replaces_the_encoder,
        "--save-scene" => crate::segment::a_saved_scene_replaces_the_encoder,
        "--raw" => crate::segment::raw_tensors_can_be_fed_back,
        "--output" => crate::segment::every_output_holds_the_same_mask,
        "--overlay" => crate::segment::every_output_holds_the_same_mask,
        "--cutout" => crate::segment::every_output_holds_the_same_mask,
        "--json" => crate::segment::every_output_holds_the_same_mask,
        "--simplify" => crate::exports::outlines_are_simplified,
        "--device" => crate::segment::devices_threads_and_precisions,
        "--threads" => crate::segment::devices_threads_and_precisions,
        "--precision" => crate::segment::devices_threads_and_precisions,
        "--vram-limit" => crate::segment::devices_threads_and_precisions,
        "--profile" => crate::segment::profiles_are_applied_and_checked,
    }
    everything {
        "--model" => crate::everything::one_picture,
        "--output" => crate::everything::one_picture,
        "--convert-to-rle" => crate::everything::a_folder_of_pictures,
        "--overlay" => crate::everything::one_picture,
        "--json" => crate::everything::one_picture,
        "--resume" => crate::everything::a_folder_of_pictures,
        "--coco" => crate::exports::a_folder_becomes_a_data_set,
        "--yolo" => crate::exports::a_folder_becomes_a_data_set,
        "--simplify" => crate::exports::a_folder_becomes_a_data_set,
        "--points-per-side" => crate::everything::options_change_the_masks,
        "--pred-iou-thresh" => crate::everything::options_change_the_masks,
        "--stability-score-thresh" => crate::everything::options_change_the_masks,
        "--stability-score-offset" => crate::everything::options_change_the_masks,
        "--box-nms-thresh" => crate::everything::options_change_the_masks,
        "--min-mask-region-area" => crate::everything::options_change_the_masks,
        "--use-m2m" => crate::everything::options_change_the_masks,
        "--crop-n-layers" => crate::everything::crops_add_masks,
        "--crop-nms-thresh" => crate::everything::crops_add_masks,
        "--crop-overlap-ratio" => crate::everything::crops_add_masks,
        "--crop-n-points-downscale-factor" => crate::everything::crops_add_masks,
        "--points-per-batch" => crate::everything::invalid_options_and_ways_to_run,
        "--device" => crate::everything::invalid_options_and_ways_to_run,
        "--threads" => crate::everything::invalid_options_and_ways_to_run,
        "--precision" => crate::everything::invalid_options_and_ways_to_run,
        "--vram-limit" => crate::everything::invalid_options_and_ways_to_run,
        "--profile" => crate::everything::invalid_options_and_ways_to_run,
    }
    batch {
        "--model" => crate::batch::a_folder_becomes_rows,
        "--output" => crate::batch::a_folder_becomes_rows,
        "--text" => crate::batch::phrases_find_objects,
        "--threshold" => crate::batch::phrases_find_objects,
        "--boxes-column" => crate::batch::tables_archives_lists_and_patterns,
        "--id-column" => crate::batch::tables_archives_lists_and_patterns,
        "--picture-column" => crate::batch::tables_archives_lists_and_patterns,
        "--polygons" => crate::batch::outlines_are_written_as_wkb,
        "--shard" => crate::batch::shards_join_to_the_whole,
        "--resume" => crate::batch::runs_go_on_with_the_same_bytes,
        "--pictures-per-part" => crate::batch::runs_go_on_with_the_same_bytes,
        "--max-errors" => crate::batch::wrong_inputs_and_too_many_errors,
        "--points-per-side" => crate::batch::options_are_those_of_everything,
        "--points-per-batch" => crate::batch::options_are_those_of_everything,
        "--pred-iou-thresh" => crate::batch::options_are_those_of_everything,
        "--stability-score-thresh" => crate::batch::options_are_those_of_everything,
        "--stability-score-offset" => crate::batch::options_are_those_of_everything,
        "--box-nms-thresh" => crate::batch::options_are_those_of_everything,
        "--crop-n-layers" => crate::batch::options_are_those_of_everything,
        "--crop-nms-thresh" => crate::batch::options_are_those_of_everything,
        "--crop-overlap-ratio" => crate::batch::options_are_those_of_everything,
        "--crop-n-points-downscale-factor" => crate::batch::options_are_those_of_everything,
        "--min-mask-region-area" => crate::batch::options_are_those_of_everything,
        "--use-m2m" => crate::batch::options_are_those_of_everything,
        "--device" => crate::batch::options_are_those_of_everything,
        "--threads" => crate::batch::options_are_those_of_everything,
        "--precision" => crate::batch::options_are_those_of_everything,
        "--vram-limit" => crate::batch::options_are_those_of_everything,
        "--profile" => crate::batch::options_are_those_of_everything,
    }
    track {
        "--model" => crate::track::invalid_arguments_are_rejected,
        "--text" => crate::phrases::objects_of_phrases_are_numbered,
        "--exemplar" => crate::phrases::prompts_on_any_frame,
        "--remove" => crate::phrases::prompts_on_any_frame,
        "--latency" => crate::phrases::answers_at_once_are_corrected_later,
        "--verbose" => crate::phrases::results_in_every_layout,
        "--detection-threshold" => crate::phrases::thresholds_decide_what_is_an_object,
        "--new-object-threshold" => crate::phrases::thresholds_decide_what_is_an_object,
        "--max-objects" => crate::phrases::thresholds_decide_what_is_an_object,
        "--delay" => crate::phrases::flags_of_phrases_are_checked,
        "--instant" => crate::phrases::flags_of_phrases_are_checked,
        "--recondition-every" => crate::phrases::flags_of_phrases_are_checked,
        "--reverse" => crate::track::backwards_from_a_mask,
        "--both" => crate::track::backwards_from_a_mask,
        "--size" => crate::track::raw_frames_on_standard_input,
        "--max-frames" => crate::track::objects_frames_and_outputs,
        "--max-prompted-frames" => crate::track::the_closest_prompted_frames_are_read,
        "--fill-hole-area" => crate::track::small_holes_are_filled,
        "--look-ahead" => crate::track::ways_to_run,
        "--history" => crate::track::objects_frames_and_outputs,
        "--resume" => crate::track::a_run_that_broke_off_goes_on_with_the_same_masks,
        "--frame" => crate::track::backwards_from_a_mask,
        "--object" => crate::track::objects_frames_and_outputs,
        "--point" => crate::track::a_disc_is_followed,
        "--box" => crate::track::small_holes_are_filled,
        "--mask-input" => crate::track::backwards_from_a_mask,
        "--output" => crate::track::raw_frames_on_standard_input,
        "--overlay" => crate::track::objects_frames_and_outputs,
        "--raw" => crate::track::objects_frames_and_outputs,
        "--device" => crate::track::ways_to_run,
        "--threads" => crate::track::ways_to_run,
        "--precision" => crate::track::ways_to_run,
        "--vram-limit" => crate::track::ways_to_run,
        "--profile" => crate::track::ways_to_run,
    }
    serve {
        "--model" => crate::serve::models_addresses_and_memory,
        "--host" => crate::serve::models_addresses_and_memory,
        "--port" => crate::serve::models_addresses_and_memory,
        "--token" => crate::serve::others_need_a_token,
        "--insecure" => crate::serve::others_need_a_token,
        "--allow-origin" => crate::serve::others_need_a_token,
        "--cache" => crate::serve::models_addresses_and_memory,
        "--label" => crate::serve::labels_are_detectors,
        "--device" => crate::serve::ways_to_run,
        "--threads" => crate::serve::ways_to_run,
        "--precision" => crate::serve::ways_to_run,
        "--vram-limit" => crate::serve::ways_to_run,
        "--profile" => crate::serve::ways_to_run,
    }
    info {
        "--tensors" => crate::info::a_model_is_described,
        "--json" => crate::info::json_report,
    }
    convert {
        "--quantize" => crate::convert::formats_and_types,
        "--images" => crate::convert::what_fewer_bits_cost_is_printed,
        "--no-card" => crate::convert::what_fewer_bits_cost_is_printed,
    }
    models {
        "--json" => crate::models::the_usual_places_are_searched,
    }
    pull {
        "--list" => crate::published::published_checkpoints_are_listed,
        "--json" => crate::published::published_checkpoints_are_listed,
        "--offline" => crate::pull::offline_opens_no_connection,
        "--mirror" => crate::pull::mirrors_are_asked_first,
        "--retries" => crate::pull::a_broken_download_goes_on,
        "--timeout" => crate::pull::silent_and_slow_hosts_are_given_up,
    }
    explain {
        "--part" => crate::explain::parts_and_passes,
        "--after" => crate::explain::parts_and_passes,
        "--device" => crate::explain::the_graph_depends_on_how_it_runs,
        "--threads" => crate::explain::the_graph_depends_on_how_it_runs,
        "--precision" => crate::explain::the_graph_depends_on_how_it_runs,
        "--vram-limit" => crate::explain::the_graph_depends_on_how_it_runs,
        "--profile" => crate::explain::the_graph_depends_on_how_it_runs,
    }
    bench {
        "--model" => crate::bench::json_has_the_documented_keys,
        "--image" => crate::bench::text_report_shows_the_options,
        "--track" => crate::bench::tracking_is_timed_on_a_clip_or_generated_frames,
        "--text" => crate::bench::phrases_are_timed,
        "--repeat" => crate::bench::text_report_shows_the_options,
        "--json" => crate::bench::json_has_the_documented_keys,
        "--device" => crate::bench::text_report_shows_the_options,
        "--threads" => crate::bench::text_report_shows_the_options,
        "--precision" => crate::bench::text_report_shows_the_options,
        "--vram-limit" => crate::bench::text_report_shows_the_options,
        "--profile" => crate::bench::text_report_shows_the_options,
    }
    compare {
        "--precision" => crate::compare::errors_masks_time_and_memory_of_each_precision,
        "--images" => crate::compare::errors_masks_time_and_memory_of_each_precision,
        "--limit" => crate::compare::phrases_and_the_number_of_pictures,
        "--text" => crate::compare::the_table_and_mistakes,
        "--device" => crate::compare::the_table_and_mistakes,
        "--threads" => crate::compare::the_table_and_mistakes,
        "--json" => crate::compare::errors_masks_time_and_memory_of_each_precision,
    }
    doctor {
        "--json" => crate::doctor::json_report,
    }
    completions {
    }
    man {
    }
}

#[test]
fn every_command_is_in_the_table() {
    let help = folder().cutout(&["--help"]).succeeds();
    let (_, commands) = help.split_once("Commands:\n").unwrap();
    // Deeper lines continue the text of the command above them.
    let names = commands.lines().take_while(|line| !line.is_empty());
    let names = names.filter(|line| !line.starts_with("   "));
    let names: Vec<&str> = names.filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(names, [COMMANDS, &["help"]].concat());
}

#[test]
fn a_flag_is_dropped_with_its_value() {
    let flag = |long: &str, short: Option<&str>, takes_value| Flag {
        command: "segment".to_owned(),
        long: long.to_owned(),
        short: short.map(str::to_owned),
        takes_value,
    };
    let arguments = ["segment", "--point", "1,2", "--json", "-p", "3,4", "--points"];
    IGNORED.set(Some(flag("--point", Some("-p"), true)));
    assert_eq!(without_ignored(&arguments), ["segment", "--json", "--points"]);
    assert_eq!(without_ignored(&["track", "-p", "3,4"]), ["track", "-p", "3,4"]);
    IGNORED.set(Some(flag("--json", None, false)));
    assert_eq!(without_ignored(&arguments[..5]), ["segment", "--point", "1,2", "-p"]);
    IGNORED.set(None);
}
