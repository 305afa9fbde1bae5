//! Whole models with random weights.

use cutout_graph::{Graph, Precision, Profile};
use cutout_sam::device::settled_profile;
use cutout_sam::model::config::{MemoryForm, ModelConfig};
use cutout_sam::model::part::{Part, Stages, graph_of};
use cutout_sam::parts::{
    BankShape, Decode, Detect, Encode, EncodeText, FindFeatures, Follow, FollowBuckets,
    FollowLevels, FrameLevels, PrepareImage,
};
use serde_json::{Value, json};

use crate::Options;
use crate::work::{Ready, Row, Timer};

/// Points of automatic masks: 32 × 32, in batches.
const POINTS: usize = 1024;
const POINT_BATCH: usize = 64;

fn graph<P: Part>(config: &ModelConfig, part: P) -> Graph {
    graph_of(&part, config, Stages::Hidden).unwrap().0
}

/// The models by Meta's names, with what else is timed.
fn models() -> Vec<(&'static str, ModelConfig, &'static [Precision])> {
    const HALF: &[Precision] = &[Precision::Auto];
    const ALL: &[Precision] = &[Precision::Auto, Precision::Bf16, Precision::Int8];
    vec![
        ("vit_b", ModelConfig::sam1_vit_b(), ALL),
        ("vit_l", ModelConfig::sam1_vit_l(), HALF),
        ("vit_h", ModelConfig::sam1_vit_h(), ALL),
        ("sam2.1_tiny", ModelConfig::sam2_tiny(MemoryForm::Sam2_1), HALF),
        ("sam2.1_large", ModelConfig::sam2_large(MemoryForm::Sam2_1), HALF),
        ("sam3", ModelConfig::sam3(), ALL),
        ("sam3.1", ModelConfig::sam3_1(), &[]),
    ]
}

fn precision_name(precision: Precision) -> &'static str {
    match precision {
        Precision::Auto | Precision::F16 => "f16",
        Precision::F32 => "f32",
        Precision::Bf16 => "bf16",
        Precision::Int8 => "int8",
    }
}

struct Model<'a> {
    name: &'static str,
    config: &'a ModelConfig,
    timer: &'a Timer<'a>,
    options: &'a Options,
    rows: Vec<Row>,
}

impl Model<'_> {
    fn ready<P: Part>(&self, part: P) -> Ready {
        self.timer
            .ready(&graph(self.config, part), &settled_profile(self.timer.profile.clone(), true))
    }

    fn add(&mut self, what: &str, programs: &[(&Ready, usize)]) {
        let name = format!("{}: {what}", self.name);
        let times = self.timer.time(programs);
        self.rows.push(Row::new(&name, times, Value::Null));
    }

    fn wants(&self, what: &str) -> bool {
        self.options.wants(&format!("{}: {what}", self.name))
    }

    /// The image encoder in every precision.
    fn encoders(&mut self, precisions: &[Precision]) {
        for &precision in precisions {
            let name = format!("{}: image encoder, {}", self.name, precision_name(precision));
            if !self.options.wants(&name) {
                continue;
            }
            let profile =
                settled_profile(Profile { precision, ..self.timer.profile.clone() }, true);
            let ready = self.timer.ready(&graph(self.config, Encode { pictures: 1 }), &profile);
            let times = self.timer.time(&[(&ready, 1)]);
            let described = match precision {
                Precision::Auto | Precision::Bf16 => {
                    json!({ "kind": "encoder", "model": self.name })
                }
                Precision::F32 | Precision::F16 | Precision::Int8 => Value::Null,
            };
            self.rows.push(Row::new(&name, times, described));
        }
    }

    fn clicks(&mut self) {
        if self.config.decoder.is_none() {
            return;
        }
        if self.wants("one click") {
            let click = self.ready(Decode::ONE_CLICK);
            self.add("one click", &[(&click, 1)]);
        }
        if self.wants("automatic masks") {
            let encoder = self.ready(Encode { pictures: 1 });
            let prepare = self.ready(PrepareImage);
            let decoder = self.ready(Decode { prompts: POINT_BATCH, ..Decode::ONE_CLICK });
            let all = [(&encoder, 1), (&prepare, 1), (&decoder, POINTS / POINT_BATCH)];
            self.add("automatic masks 32×32, the card's part", &all);
        }
    }

    /// What a frame needs once, however many objects are followed.
    fn frame(&self) -> Vec<Ready> {
        let mut programs = vec![self.ready(Encode { pictures: 1 })];
        let multiplex =
            self.config.memory.as_ref().is_some_and(|memory| memory.multiplex.is_some());
        if multiplex {
            programs.push(self.ready(FollowLevels));
        } else if self.config.finder.is_some() {
            programs.push(self.ready(FrameLevels));
        } else {
            programs.push(self.ready(PrepareImage));
        }
        programs
    }

    /// Follows objects whose memories are full.
    fn follow(&self, objects: usize) -> Ready {
        let memory = self.config.memory.as_ref().unwrap();
        let bank = |count| BankShape::kept(count, memory.frames, memory.pointer_frames);
        match &memory.multiplex {
            Some(multiplex) => self.ready(FollowBuckets {
                bank: bank(objects.div_ceil(multiplex.slots)),
                remember: true,
            }),
            None => self.ready(Follow { bank: bank(objects), remember: true }),
        }
    }

    fn tracking(&mut self) {
        if self.config.memory.is_none() || !self.wants("tracked frame") {
            return;
        }
        let frame = self.frame();
        let counts: &[usize] = if self.config.finder.is_some() { &[1, 4, 16] } else { &[1, 4] };
        for &objects in counts {
            let follow = self.follow(objects);
            let what = format!("tracked frame, memory full, {objects} objects");
            let programs: Vec<_> = frame.iter().chain([&follow]).map(|ready| (ready, 1)).collect();
            self.add(&what, &programs);
        }
    }

    /// A frame of a video that is searched for a phrase, with five objects followed.
    fn searched_frame(&mut self) {
        if self.config.finder.is_none() || !self.wants("searched frame") {
            return;
        }
        let features = self.ready(FindFeatures);
        let detector = self.ready(Detect { text: 4, exemplars: 1 });
        let follow = self.follow(5);
        let frame = self.frame();
        let all: Vec<_> =
            frame.iter().chain([&features, &detector, &follow]).map(|ready| (ready, 1)).collect();
        self.add("searched frame of a video, 1 phrase, 5 objects, the card's part", &all);
    }

    fn phrases(&mut self) {
        if self.config.finder.is_none() || !self.wants("picture and phrase") {
            return;
        }
        let encoder = self.ready(Encode { pictures: 1 });
        let features = self.ready(FindFeatures);
        let text = self.ready(EncodeText { tokens: 4, kept: 4 });
        let detector = self.ready(Detect { text: 4, exemplars: 1 });
        let all = [(&encoder, 1), (&features, 1), (&text, 1), (&detector, 1)];
        self.add("picture and phrase", &all);
        self.add("another phrase", &[(&text, 1), (&detector, 1)]);
    }
}

/// The times of all models.
pub(crate) fn rows(timer: &Timer<'_>, options: &Options) -> Vec<Row> {
    let mut rows = Vec::new();
    for (name, config, precisions) in models() {
        let mut model = Model { name, config: &config, timer, options, rows: Vec::new() };
        model.encoders(precisions);
        if ["vit_b", "sam2.1_tiny", "sam2.1_large"].contains(&name) {
            model.clicks();
        }
        model.tracking();
        model.phrases();
        model.searched_frame();
        rows.append(&mut model.rows);
    }
    rows
}
