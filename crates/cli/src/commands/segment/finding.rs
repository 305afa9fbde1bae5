//! Objects by phrase and exemplar.

use anyhow::Result;
use cutout_imaging::{Rle, Threshold, has_letter};
use cutout_sam::{Detections, Find, Scene};

use crate::output::{Annotation, Category, Finding, Place, write_raw_detections};
use crate::progress::Progress;
use crate::screen;

use super::Segment;

/// What is written of objects.
#[derive(Default)]
pub(super) struct Objects {
    pub(super) categories: Vec<Category>,
    pub(super) annotations: Vec<Annotation>,
    pub(super) shown: Vec<Rle>,
    /// What an overlay says of each.
    pub(super) labels: Vec<String>,
}

impl Segment {
    /// Looks for what is asked, phrase by phrase: makes the records and writes the model's own tensors if they are wanted,
    /// so that the numbers of one phrase at a time are in memory.
    pub(super) fn find(&self, scene: &Scene, find: &Find) -> Result<Objects> {
        let (mut objects, mut notes) = (Objects::default(), Vec::new());
        let looking = Looking::begin(find.phrases());
        let mut detections = scene.raw_detections(find)?.enumerate().map(|(index, detection)| {
            let detection = detection?;
            let answer = detection.select(find)?;
            notes.extend(self.notes(&answer));
            self.add(&mut objects, index, &answer);
            looking.goes_on(index + 1);
            Ok(detection)
        });
        match &self.raw {
            Some(path) => write_raw_detections(path, find.phrases(), detections)?,
            None => detections.try_for_each(|detection| detection.map(drop))?,
        }
        drop(looking);
        notes.iter().for_each(|note| screen::note(note));
        Ok(objects)
    }

    /// What is said of an answer.
    fn notes(&self, answer: &Detections) -> Vec<String> {
        let name = name(answer);
        let mut notes = Vec::new();
        if answer.phrase_was_cut() {
            notes.push(format!("{name:?} is longer than the model reads: its end is left out"));
        }
        if answer.is_empty() && !self.finding.semantic() {
            notes.push(nothing_found(name, answer));
        }
        notes
    }

    fn add(&self, objects: &mut Objects, prompt: usize, answer: &Detections) {
        let name = name(answer);
        // As in COCO, from 1 on.
        let category_id = prompt + 1;
        objects.categories.push(Category { id: category_id, name: name.to_owned() });
        let presence = answer.presence();
        let finding = |score: f32, box_of: Option<[f64; 4]>| Finding {
            phrase: answer.phrase().map(str::to_owned),
            category_id,
            score,
            presence,
            detected_bbox: box_of,
        };
        let threshold = Threshold { value: self.mask_threshold, ..Threshold::default() };
        let mut enter = |segment: &cutout_sam::Segment, finding: Finding| {
            let place = Place { id: objects.annotations.len(), prompt, best: true };
            objects.labels.push(format!("{} {:.2}", label(name, category_id), finding.score));
            let (annotation, rle) = Annotation::found(&place, segment, threshold, finding);
            objects.annotations.push(annotation);
            objects.shown.push(rle);
        };
        if self.finding.semantic() {
            enter(answer.semantic(), finding(presence, None));
            return;
        }
        for instance in answer {
            let rect = instance.rect();
            let xywh = [rect.x0, rect.y0, rect.x1 - rect.x0, rect.y1 - rect.y0];
            enter(instance.segment(), finding(instance.score(), Some(xywh)));
        }
    }
}

/// What to call that which was looked for.
fn name(answer: &Detections) -> &str {
    answer.phrase().unwrap_or("exemplars")
}

/// The phrase that is looked for, on the screen.
struct Looking<'a> {
    phrases: &'a [String],
    progress: Progress,
}

impl<'a> Looking<'a> {
    fn begin(phrases: &'a [String]) -> Self {
        let progress = match phrases {
            [] => Progress::spinner("looks for what is like the exemplars"),
            [phrase] => Progress::spinner(looks_for(phrase)),
            [first, ..] => Progress::bar(phrases.len() as u64, looks_for(first)),
        };
        Looking { phrases, progress }
    }

    /// So many are done.
    fn goes_on(&self, done: usize) {
        self.progress.set(done as u64);
        if let Some(next) = self.phrases.get(done) {
            self.progress.say(looks_for(next));
        }
    }
}

fn looks_for(phrase: &str) -> String {
    format!("looks for {phrase:?}")
}

/// Quoted, so that what a phrase may hold does nothing to a terminal.
fn nothing_found(name: &str, answer: &Detections) -> String {
    let (best, presence) = (answer.best_score(), answer.presence());
    format!(
        "{name:?}: nothing found; the best score is {best:.2}, presence {presence:.2} (see --threshold)"
    )
}

/// Most letters of a name on an overlay.
const LONGEST_LABEL: usize = 32;

/// A name as an overlay can draw it: its beginning if it is long, and the number of its category where the font lacks half of
/// its letters or more.
fn label(name: &str, category_id: usize) -> String {
    let known =
        name.chars().filter(|letter| has_letter(*letter) && !letter.is_whitespace()).count();
    let all = name.chars().filter(|letter| !letter.is_whitespace()).count();
    if 2 * known <= all {
        return format!("#{category_id}");
    }
    if name.chars().count() <= LONGEST_LABEL {
        return name.to_owned();
    }
    let start: String = name.chars().take(LONGEST_LABEL - 2).collect();
    format!("{}..", start.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_what_can_be_drawn() {
        assert_eq!(label("yellow bus", 1), "yellow bus");
        assert_eq!(label("Bär 🐻", 2), "Bär 🐻");
        assert_eq!(label("кошка", 3), "#3");
        assert_eq!(label("🐈", 12), "#12");
        let long = label(&"a long phrase ".repeat(20), 1);
        assert_eq!(long, "a long phrase a long phrase a..");
        assert!(long.chars().count() <= LONGEST_LABEL);
    }
}
