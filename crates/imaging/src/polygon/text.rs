//! Polygons as SVG paths and GeoJSON.

use std::fmt::Write;

use super::{Point, Polygon};

/// The `d` attribute of an SVG path, for `fill-rule="evenodd"`. Empty without polygons.
pub fn to_svg_path(polygons: &[Polygon]) -> String {
    let mut text = String::new();
    for ring in polygons.iter().flat_map(Polygon::rings) {
        for (i, [x, y]) in ring.iter().enumerate() {
            let command = if i == 0 { 'M' } else { 'L' };
            let _infallible = write!(text, "{command}{x} {y}");
        }
        text.push('Z');
    }
    text
}

/// A GeoJSON `MultiPolygon` in pixels with y pointing down. Rings end with their first point, as GeoJSON requires.
pub fn to_geojson(polygons: &[Polygon]) -> String {
    let ring_text = |ring: &Vec<Point>| {
        let closed = ring.iter().chain(ring.first());
        let points: Vec<String> = closed.map(|[x, y]| format!("[{x},{y}]")).collect();
        format!("[{}]", points.join(","))
    };
    let polygon_text = |polygon: &Polygon| {
        let rings: Vec<String> = polygon.rings().map(ring_text).collect();
        format!("[{}]", rings.join(","))
    };
    let all: Vec<String> = polygons.iter().map(polygon_text).collect();
    format!("{{\"type\":\"MultiPolygon\",\"coordinates\":[{}]}}", all.join(","))
}
