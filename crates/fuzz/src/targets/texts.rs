//! Texts: profiles and prompts.

use std::sync::OnceLock;

use cutout_graph::{Profile, StoredProfile};
use cutout_imaging::Size;
use cutout_sam::prompt_text::{ExemplarShape, parse_exemplar, parse_point, parse_rect};
use cutout_sam::{Find, Prompt, Sam};

use super::Target;

pub(super) const PROFILES: Target = Target {
    name: "profiles",
    about: "profiles in TOML",
    seeds: profile_seeds,
    words: &[
        "device = ",
        "threads = ",
        "precision = ",
        "memory_limit_mib = ",
        "[parts]\n",
        "[passes]\n",
        "\"int8\"",
        "\"cuda:0\"",
        "fold_constants = false\n",
        "[[",
        "]]",
        "'''",
        "\"\"\"",
        "0x7fffffffffffffff",
        "1979-05-27",
        "{",
        "}",
        "\n",
    ],
    read: read_profile,
    memory: 1 << 20,
};

pub(super) const PROMPTS: Target = Target {
    name: "prompts",
    about: "points, boxes and exemplars as text, checked against a picture",
    seeds: prompt_seeds,
    words: &[",", "-", "+", "e", ".", "inf", "nan", "1e308", "1e-400", "\u{2212}"],
    read: read_prompt,
    memory: 1 << 20,
};

/// Reads a profile, and the profile that a checkpoint carries.
fn read_profile(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let own = Profile::parse(&text);
    let stored = StoredProfile::parse(&text);
    if let Ok(profile) = &own {
        assert_eq!(Profile::parse(&profile.to_toml()).as_ref(), Ok(profile));
    }
    if let Ok(stored) = &stored {
        assert_eq!(StoredProfile::parse(&stored.to_text("a\nb")).as_ref(), Ok(stored));
        let mut completed = own.clone().expect("what a file may carry, a profile may say");
        stored.complete(&mut completed);
        assert_eq!(own.as_ref(), Ok(&completed), "its own parts are named already");
    }
    let errors = [own.as_ref().err(), stored.as_ref().err()];
    own.is_ok() || errors.into_iter().flatten().any(|error| error.to_string().is_empty())
}

fn profile_seeds() -> Vec<Vec<u8>> {
    let texts = [
        "device = \"cuda:1\"\nthreads = 3\nmemory_limit_mib = 400\n[parts]\nimage_encoder = \"int8\"\n",
        "precision = \"bf16\"\n[passes]\nfuse_epilogues = false\nfold_constants = true\n",
        "threads = 2 # a comment\n",
        "# measured\nprecision = \"int8\"\n[parts]\n\"image_encoder.blocks.3\" = \"bf16\"\nprompt_encoder = \"f32\"\n",
    ];
    texts.map(Vec::from).to_vec()
}

fn prompt_seeds() -> Vec<Vec<u8>> {
    // Opened here, so that its memory does not count as that of the first input.
    model();
    ["3,4", "3.5, 4, 0", "1,2,30,40", "-5,6.5", "+1,2,3,4"].map(Vec::from).to_vec()
}

/// The built-in model, for its checks of prompts.
fn model() -> &'static Sam {
    static MODEL: OnceLock<Sam> = OnceLock::new();
    MODEL.get_or_init(|| Sam::builtin().expect("the built-in model opens"))
}

fn read_prompt(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let size = Size::new(50, 31);
    let mut accepted = false;
    if let Ok((point, label)) = parse_point(&text) {
        assert!(point.x.is_finite() && point.y.is_finite());
        let checked = model().check_prompt(&Prompt::default().with_point(point, label), size);
        let inside = (0.0..=50.0).contains(&point.x) && (0.0..=31.0).contains(&point.y);
        assert_eq!(checked.is_ok(), inside, "{point}");
        accepted = true;
    }
    if let Ok(rect) = parse_rect(&text) {
        let _ = model().check_prompt(&Prompt::default().with_rect(rect), size);
        accepted = true;
    }
    if let Ok((shape, label)) = parse_exemplar(&text) {
        let find = match shape {
            ExemplarShape::Rect(rect) => Find::default().with_rect(rect, label),
            ExemplarShape::Point(point) => Find::default().with_point(point, label),
        };
        assert!(model().check_find(&find, size).is_err(), "the built-in model has no detector");
        accepted = true;
    }
    accepted
}
