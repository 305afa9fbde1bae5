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

/// A `MultiPolygon` in well-known binary (little-endian), in pixels with y pointing down: what GeoParquet, PostGIS and Shapely
/// read. Rings end with their first point.
pub fn to_wkb(polygons: &[Polygon]) -> Vec<u8> {
    const LITTLE_ENDIAN: u8 = 1;
    const POLYGON: u32 = 3;
    const MULTI_POLYGON: u32 = 6;
    let mut bytes = Vec::new();
    let head = |bytes: &mut Vec<u8>, kind: u32, parts: usize| {
        bytes.push(LITTLE_ENDIAN);
        bytes.extend(kind.to_le_bytes());
        bytes.extend(count(parts));
    };
    head(&mut bytes, MULTI_POLYGON, polygons.len());
    for polygon in polygons {
        head(&mut bytes, POLYGON, 1 + polygon.holes.len());
        for ring in polygon.rings() {
            let closed: Vec<&Point> = ring.iter().chain(ring.first()).collect();
            bytes.extend(count(closed.len()));
            bytes.extend(closed.into_iter().flatten().flat_map(|number| number.to_le_bytes()));
        }
    }
    bytes
}

/// A number of parts. Pictures have fewer pixels than it can count.
fn count(parts: usize) -> [u8; 4] {
    u32::try_from(parts).unwrap_or(u32::MAX).to_le_bytes()
}
