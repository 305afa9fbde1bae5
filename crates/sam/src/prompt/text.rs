//! Prompts as text: the forms of the command line.

use super::{Label, Point, Rect};

/// What is wrong with the text of a prompt.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PromptTextError {
    /// A part that is no finite number.
    #[error("{0:?} is not a number")]
    Number(String),
    /// Not the numbers of a point.
    #[error("expected X,Y or X,Y,1 (on the object) or X,Y,0 (not on it)")]
    Point,
    /// Not the numbers of a box.
    #[error("expected X0,Y0,X1,Y1 (left, top, right, bottom)")]
    Rect,
    /// Not the numbers of an exemplar.
    #[error("expected X0,Y0,X1,Y1 (a box) or X,Y (a point)")]
    Exemplar,
}

/// An example of what to find.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ExemplarShape {
    /// A box around it.
    Rect(Rect),
    /// A point on it.
    Point(Point),
}

/// Parses a finite number.
pub fn parse_number(text: &str) -> Result<f64, PromptTextError> {
    match text.trim().parse::<f64>() {
        Ok(value) if value.is_finite() => Ok(value),
        Ok(_) | Err(_) => Err(PromptTextError::Number(text.to_owned())),
    }
}

fn parse_numbers(text: &str) -> Result<Vec<f64>, PromptTextError> {
    text.split(',').map(parse_number).collect()
}

/// Parses `X,Y` or `X,Y,1` (on the object) or `X,Y,0` (not on it).
pub fn parse_point(text: &str) -> Result<(Point, Label), PromptTextError> {
    match parse_numbers(text)?[..] {
        [x, y] | [x, y, 1.0] => Ok((Point { x, y }, Label::Positive)),
        [x, y, 0.0] => Ok((Point { x, y }, Label::Negative)),
        _ => Err(PromptTextError::Point),
    }
}

/// Parses `X0,Y0,X1,Y1`.
pub fn parse_rect(text: &str) -> Result<Rect, PromptTextError> {
    match parse_numbers(text)?[..] {
        [x0, y0, x1, y1] => Ok(Rect { x0, y0, x1, y1 }),
        _ => Err(PromptTextError::Rect),
    }
}

/// Parses a box or a point; a leading `-` makes it an example of what not to find.
pub fn parse_exemplar(text: &str) -> Result<(ExemplarShape, Label), PromptTextError> {
    let (label, numbers) = match (text.strip_prefix('-'), text.strip_prefix('+')) {
        (Some(numbers), _) => (Label::Negative, numbers),
        (None, Some(numbers)) => (Label::Positive, numbers),
        (None, None) => (Label::Positive, text),
    };
    let shape = match parse_numbers(numbers)?[..] {
        [x0, y0, x1, y1] => ExemplarShape::Rect(Rect { x0, y0, x1, y1 }),
        [x, y] => ExemplarShape::Point(Point { x, y }),
        _ => return Err(PromptTextError::Exemplar),
    };
    Ok((shape, label))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_have_labels() {
        assert_eq!(parse_point("3,4").unwrap(), (Point { x: 3.0, y: 4.0 }, Label::Positive));
        assert_eq!(parse_point("3, 4.5, 0").unwrap(), (Point { x: 3.0, y: 4.5 }, Label::Negative));
        for wrong in ["3", "3,4,2", "3,4,1,1", "a,b", "nan,1", ""] {
            assert!(parse_point(wrong).is_err(), "{wrong}");
        }
        assert!(parse_rect("1,2,3").is_err());
    }

    #[test]
    fn a_sign_sets_the_label() {
        let rect = ExemplarShape::Rect(Rect { x0: 1.0, y0: 2.0, x1: 3.0, y1: 4.0 });
        let point = ExemplarShape::Point(Point { x: 5.0, y: 6.5 });
        for (text, shape, label) in [
            ("1,2,3,4", rect, Label::Positive),
            ("+1,2,3,4", rect, Label::Positive),
            ("-1,2,3,4", rect, Label::Negative),
            ("5,6.5", point, Label::Positive),
            ("-5,6.5", point, Label::Negative),
        ] {
            assert_eq!(parse_exemplar(text), Ok((shape, label)), "{text}");
        }
        for wrong in ["", "-", "1,2,3", "1", "1,2,3,4,5", "+a,b,c,d", "1,nan"] {
            assert!(parse_exemplar(wrong).is_err(), "{wrong}");
        }
    }
}
