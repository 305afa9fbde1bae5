//! Objects by phrase and exemplar.

use anyhow::Result;
use cutout_imaging::{Rle, Threshold, has_letter};
use cutout_sam::{Answer, Find, Scene};

use crate::output::{Annotation, Category, Finding, Place, write_raw_detections};
use crate::progress::Progress;
use crate::screen;

use super::Segment;

/// What is written of objects.
pub(super) struct Objects {
    pub(super) categories: Vec<Category>,
    pub(super) annotations: Vec<Annotation>,
    pub(super) shown: Vec<Rle>,
    /// What an overlay says of each.
    pub(super) labels: Vec<String>,
}

impl Segment {
    /// Looks for what is asked, writes the model's own tensors if they are wanted, and makes the records.
    pub(super) fn find(&self, scene: &Scene, find: &Find) -> Result<Objects> {
        let answers = match &self.raw {
            None => answers(scene, find)?,
            Some(path) => {
                let detections = scene.detect(find)?;
                write_raw_detections(path, &detections)?;
                detections
                    .iter()
                    .map(|detection| Ok(detection.answer(find)?))
                    .collect::<Result<_>>()?
            }
        };
        let mut objects = Objects {
            categories: Vec::new(),
            annotations: Vec::new(),
            shown: Vec::new(),
            labels: Vec::new(),
        };
        for (index, answer) in answers.iter().enumerate() {
            self.add(&mut objects, index, answer);
        }
        Ok(objects)
    }

    fn add(&self, objects: &mut Objects, prompt: usize, answer: &Answer) {
        let name = answer.phrase().unwrap_or("exemplars");
        if answer.phrase_was_cut() {
            screen::note(&format!("{name:?} is longer than the model reads: its end is left out"));
        }
        if answer.instances().is_empty() && !self.finding.semantic() {
            screen::note(&nothing_found(name, answer));
        }
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
        for instance in answer.instances() {
            let rect = instance.rect();
            let xywh = [rect.x0, rect.y0, rect.x1 - rect.x0, rect.y1 - rect.y0];
            enter(instance.segment(), finding(instance.score(), Some(xywh)));
        }
    }
}

/// The answers to all phrases, with the one that is looked for on the screen.
fn answers(scene: &Scene, find: &Find) -> Result<Vec<Answer>> {
    let phrases = find.phrases();
    let what = |index: usize| match phrases.get(index) {
        Some(phrase) => format!("looks for {phrase:?}"),
        None => "looks for what is like the exemplars".to_owned(),
    };
    let progress = match phrases.len() {
        0 | 1 => Progress::spinner(what(0)),
        several => Progress::bar(several as u64, what(0)),
    };
    let mut answers = Vec::new();
    scene.find_each(find, |answer| {
        answers.push(answer);
        progress.set(answers.len() as u64);
        if answers.len() < phrases.len() {
            progress.say(what(answers.len()));
        }
    })?;
    Ok(answers)
}

/// Quoted, so that what a phrase may hold does nothing to a terminal.
fn nothing_found(name: &str, answer: &Answer) -> String {
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
