//! Objects by phrase and exemplar.

use anyhow::Result;
use cutout_imaging::{Rle, Threshold, has_letter};
use cutout_sam::{Detections, Find, Scene};

use crate::output::{Annotation, Category, Finding, MaskIndex, write_raw_detections};
use crate::progress::Progress;
use crate::stdio;

use super::Segment;

/// The objects to write.
#[derive(Default)]
pub(super) struct Objects {
    pub(super) categories: Vec<Category>,
    pub(super) annotations: Vec<Annotation>,
    pub(super) shown: Vec<Rle>,
    /// Label of each object on the overlay.
    pub(super) labels: Vec<String>,
}

impl Segment {
    /// Finds the objects phrase by phrase, and writes the raw tensors if requested. The tensors of only one phrase are in
    /// memory at a time.
    pub(super) fn find(&self, scene: &Scene, find: &Find) -> Result<Objects> {
        let (mut objects, mut notes) = (Objects::default(), Vec::new());
        let progress = FindProgress::begin(find.phrases());
        let mut detections = scene.raw_detections(find)?.enumerate().map(|(index, detection)| {
            let detection = detection?;
            let answer = detection.select(find)?;
            notes.extend(self.notes(&answer));
            self.add(&mut objects, index, &answer)?;
            progress.set_done(index + 1);
            Ok(detection)
        });
        match &self.raw {
            Some(path) => write_raw_detections(path, find.phrases(), detections)?,
            None => detections.try_for_each(|detection| detection.map(drop))?,
        }
        drop(progress);
        notes.iter().for_each(|note| stdio::note(note));
        Ok(objects)
    }

    /// Notes about an answer, for standard error.
    fn notes(&self, answer: &Detections) -> Vec<String> {
        let name = name(answer);
        let mut notes = Vec::new();
        if answer.phrase_was_cut() {
            notes.push(format!("{name:?} is longer than the model reads: its end is ignored"));
        }
        if answer.is_empty() && !self.finding.semantic() {
            notes.push(nothing_found(name, answer));
        }
        notes
    }

    fn add(&self, objects: &mut Objects, prompt: usize, answer: &Detections) -> Result<()> {
        let name = name(answer);
        // Counted from 1, as in COCO.
        let category_id = prompt + 1;
        objects.categories.push(Category { id: category_id, name: name.to_owned() });
        let presence = answer.presence();
        let finding = |score: f32, box_of: Option<[f64; 4]>| Finding {
            phrase: answer.phrase().map(str::to_owned),
            score,
            presence,
            detected_bbox: box_of,
        };
        let threshold = Threshold { value: self.mask_threshold, ..Threshold::default() };
        let mut enter = |segment: &cutout_sam::Segment, finding: Finding| {
            let index = MaskIndex {
                index: objects.annotations.len(),
                prompt,
                best: true,
                category_id,
                simplify: self.output.simplify(),
            };
            objects.labels.push(format!("{} {:.2}", label(name, category_id), finding.score));
            let (annotation, rle) = Annotation::found(&index, segment, threshold, finding)?;
            objects.annotations.push(annotation);
            objects.shown.push(rle);
            anyhow::Ok(())
        };
        if self.finding.semantic() {
            return enter(answer.semantic(), finding(presence, None));
        }
        for instance in answer {
            let rect = instance.rect();
            let xywh = [rect.x0, rect.y0, rect.x1 - rect.x0, rect.y1 - rect.y0];
            enter(instance.segment(), finding(instance.score(), Some(xywh)))?;
        }
        Ok(())
    }
}

/// The phrase as shown in labels and file names.
fn name(answer: &Detections) -> &str {
    answer.phrase().unwrap_or("exemplars")
}

/// Progress display of the search, with the current phrase.
struct FindProgress<'a> {
    phrases: &'a [String],
    progress: Progress,
}

impl<'a> FindProgress<'a> {
    fn begin(phrases: &'a [String]) -> Self {
        let progress = match phrases {
            [] => Progress::spinner("finding objects like the exemplars"),
            [phrase] => Progress::spinner(finding(phrase)),
            [first, ..] => Progress::bar(phrases.len() as u64, finding(first)),
        };
        FindProgress { phrases, progress }
    }

    /// Sets the number of finished phrases.
    fn set_done(&self, done: usize) {
        self.progress.set(done as u64);
        if let Some(next) = self.phrases.get(done) {
            self.progress.say(finding(next));
        }
    }
}

fn finding(phrase: &str) -> String {
    format!("finding {phrase:?}")
}

/// The note for a phrase without objects. The phrase is quoted, which escapes control characters.
fn nothing_found(name: &str, answer: &Detections) -> String {
    let (best, presence) = (answer.best_score(), answer.presence());
    format!(
        "{name:?}: nothing found; the best score is {best:.2}, presence {presence:.2} (see --threshold)"
    )
}

/// Most characters of a label on an overlay.
const LONGEST_LABEL: usize = 32;

/// The label of a phrase on an overlay: shortened if it is long, and the number of its category if the font lacks half of
/// its characters or more.
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
    fn labels_are_shortened_or_replaced_by_numbers() {
        assert_eq!(label("yellow bus", 1), "yellow bus");
        assert_eq!(label("Bär 🐻", 2), "Bär 🐻");
        assert_eq!(label("кошка", 3), "#3");
        assert_eq!(label("🐈", 12), "#12");
        let long = label(&"a long phrase ".repeat(20), 1);
        assert_eq!(long, "a long phrase a long phrase a..");
        assert!(long.chars().count() <= LONGEST_LABEL);
    }
}
