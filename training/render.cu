// Ray-marches scenes of solids over a floor and walls: one thread a pixel with nvcc, one loop with a C++ compiler.
//
// A scene is a view, up to `things` solids and three flat surfaces; all of it are rows of floats that
// depth_scenes.py fills in. Every solid is a join of a few primitives in its own coordinates, y up.

#include <cmath>
#include <cstdint>

#ifdef __CUDACC__
#define FN __device__ static
#else
#define FN static
#endif

// Row lengths; depth_scenes.py has the same numbers.
constexpr int VIEW = 64, MATERIAL = 16, THING = 48, PRIMITIVE = 24, DECAL = 16;
constexpr int PRIMITIVES = 8, DECALS = 3, INNER = 16, MATERIALS = 6, PROFILE_SIDE = 128, TEXTURE_SIDE = 256;
constexpr float PROFILE_EXTENT = 1.25f;

struct Tables {
    const float *views, *things, *primitives, *decals, *materials, *surfaces, *profiles;
    const uint8_t *textures[5];  // levels of half the side each, RGBA
    int scenes, count, side;
};

struct V {
    float x, y, z;
};

FN V v(float x, float y, float z) { return V{x, y, z}; }
FN V at(const float *a) { return V{a[0], a[1], a[2]}; }
FN V operator+(V a, V b) { return v(a.x + b.x, a.y + b.y, a.z + b.z); }
FN V operator-(V a, V b) { return v(a.x - b.x, a.y - b.y, a.z - b.z); }
FN V operator*(V a, float s) { return v(a.x * s, a.y * s, a.z * s); }
FN V operator*(V a, V b) { return v(a.x * b.x, a.y * b.y, a.z * b.z); }
FN float dot(V a, V b) { return a.x * b.x + a.y * b.y + a.z * b.z; }
FN float length(V a) { return sqrtf(dot(a, a)); }
FN V unit(V a) { return a * (1.0f / fmaxf(length(a), 1e-8f)); }
FN V mix(V a, V b, float s) { return a + (b - a) * s; }
FN float clamp01(float a) { return fminf(fmaxf(a, 0.0f), 1.0f); }
FN V above0(V a) { return v(fmaxf(a.x, 0), fmaxf(a.y, 0), fmaxf(a.z, 0)); }
// Rotations are stored by rows; `turn` goes from local to outer coordinates, `unturn` back.
FN V turn(const float *m, V p) { return v(dot(at(m), p), dot(at(m + 3), p), dot(at(m + 6), p)); }
FN V unturn(const float *m, V p) { return at(m) * p.x + at(m + 3) * p.y + at(m + 6) * p.z; }

FN float mirrored(float a) {
    a = fabsf(a - 2.0f * floorf(a * 0.5f));
    return a > 1.0f ? 2.0f - a : a;
}

// Bilinear colour of a texture at (x, y) in tiles that mirror, at a level of detail.
FN V texel(const Tables &s, int index, float x, float y, float level) {
    int step = (int)fminf(fmaxf(level + 0.5f, 0.0f), 4.0f), side = TEXTURE_SIDE >> step;
    float u = mirrored(x) * (side - 1), w = mirrored(y) * (side - 1);
    int i = (int)u, j = (int)w, i1 = i + 1 < side ? i + 1 : i, j1 = j + 1 < side ? j + 1 : j;
    float a = u - i, b = w - j;
    const uint8_t *base = s.textures[step] + (int64_t)index * side * side * 4;
    const uint8_t *p = base + (j * side + i) * 4, *q = base + (j * side + i1) * 4;
    const uint8_t *r = base + (j1 * side + i) * 4, *t = base + (j1 * side + i1) * 4;
    float c[3];
    for (int k = 0; k < 3; k++)
        c[k] = ((p[k] * (1 - a) + q[k] * a) * (1 - b) + (r[k] * (1 - a) + t[k] * a) * b) * (1 / 255.0f);
    return v(c[0], c[1], c[2]);
}

// Field of a flat shape, positive inside, at coordinates in which it spans about [-1, 1].
FN float profile(const Tables &s, int index, float x, float y) {
    float u = (x / PROFILE_EXTENT * 0.5f + 0.5f) * PROFILE_SIDE - 0.5f;
    float w = (0.5f - y / PROFILE_EXTENT * 0.5f) * PROFILE_SIDE - 0.5f;
    float far = fmaxf(fmaxf(-u, u - PROFILE_SIDE + 1), fmaxf(fmaxf(-w, w - PROFILE_SIDE + 1), 0.0f));
    u = fminf(fmaxf(u, 0.0f), PROFILE_SIDE - 1.001f), w = fminf(fmaxf(w, 0.0f), PROFILE_SIDE - 1.001f);
    int i = (int)u, j = (int)w;
    float a = u - i, b = w - j;
    const float *p = s.profiles + (int64_t)index * PROFILE_SIDE * PROFILE_SIDE + j * PROFILE_SIDE + i;
    float inside = (p[0] * (1 - a) + p[1] * a) * (1 - b) + (p[PROFILE_SIDE] * (1 - a) + p[PROFILE_SIDE + 1] * a) * b;
    return inside - far * (2 * PROFILE_EXTENT / PROFILE_SIDE);
}

FN float box(V p, V size, float round) {
    V q = v(fabsf(p.x) - size.x + round, fabsf(p.y) - size.y + round, fabsf(p.z) - size.z + round);
    return length(above0(q)) + fminf(fmaxf(q.x, fmaxf(q.y, q.z)), 0.0f) - round;
}

FN float flat_pair(float side, float height, float round) {
    float a = fmaxf(side + round, 0.0f), b = fmaxf(height + round, 0.0f);
    return sqrtf(a * a + b * b) + fminf(fmaxf(side + round, height + round), 0.0f) - round;
}

// Radius of a turned solid at height -1..1, smooth between twelve given ones.
FN float turned_radius(const float *radii, float height) {
    float u = (clamp01(height * 0.5f + 0.5f)) * 10.999f;
    int i = (int)u;
    float a = u - i;
    a = a * a * (3 - 2 * a);
    return radii[i] * (1 - a) + radii[i + 1] * a;
}

FN float lattice(int x, int y, int z) {
    uint32_t h = (uint32_t)x * 73856093u ^ (uint32_t)y * 19349663u ^ (uint32_t)z * 83492791u;
    h = (h ^ (h >> 13)) * 1274126177u;
    return ((h >> 8) & 0xffff) * (1 / 65535.0f);
}

// Smooth noise between 0 and 1 with one lattice cell a unit.
FN float noise(V p) {
    float fx = floorf(p.x), fy = floorf(p.y), fz = floorf(p.z);
    float a = p.x - fx, b = p.y - fy, c = p.z - fz;
    a = a * a * (3 - 2 * a), b = b * b * (3 - 2 * b), c = c * c * (3 - 2 * c);
    int x = (int)fx, y = (int)fy, z = (int)fz;
    float value[2];
    for (int k = 0; k < 2; k++) {
        float low = lattice(x, y, z + k) * (1 - a) + lattice(x + 1, y, z + k) * a;
        float high = lattice(x, y + 1, z + k) * (1 - a) + lattice(x + 1, y + 1, z + k) * a;
        value[k] = low * (1 - b) + high * b;
    }
    return value[0] * (1 - c) + value[1] * c;
}

// A point in a primitive's own coordinates.
FN V placed(const float *row, V p) { return unturn(row + 4, p - at(row + 1)); }

// Whether a point on a primitive lies in its inner part: the hub of a disc, the panel of a box.
FN bool is_inner(const float *row, V p) {
    if (row[21] <= 0) return false;
    p = placed(row, p);
    if ((int)row[0] == 2) return sqrtf(p.x * p.x + p.z * p.z) < row[21] * row[13];
    return fabsf(p.x) < row[21] * row[13] && fabsf(p.y) < row[21] * row[14] && fabsf(p.z) > 0.9f * row[15];
}

FN float primitive(const Tables &s, const float *thing, const float *row, V p) {
    p = placed(row, p);
    V size = at(row + 13);
    float round = row[16], ring = sqrtf(p.x * p.x + p.z * p.z), d;
    int kind = (int)row[0];
    if (kind == 0) {  // ellipsoid
        V a = v(p.x / size.x, p.y / size.y, p.z / size.z), b = v(a.x / size.x, a.y / size.y, a.z / size.z);
        float k = length(a);
        d = k * (k - 1) / fmaxf(length(b), 1e-6f);
        if (k < 1e-3f) d = -fminf(size.x, fminf(size.y, size.z));
    } else if (kind == 1) {
        d = box(p, size, round);
    } else if (kind == 2) {  // cylinder along y
        d = flat_pair(ring - size.x, fabsf(p.y) - size.y, round);
    } else if (kind == 3) {  // capsule along y, `size.z` thick at its top, `size.x` at its foot
        float h = clamp01((p.y + size.y) / (2 * size.y));
        float y = p.y - fminf(fmaxf(p.y, -size.y), size.y);
        d = sqrtf(ring * ring + y * y) - (size.x + (size.z - size.x) * h);
    } else if (kind == 4) {  // torus about y
        float a = ring - size.x;
        d = sqrtf(a * a + p.y * p.y) - size.y;
    } else if (kind == 5) {  // frustum along y
        float r = size.x + (size.z - size.x) * clamp01(p.y / (2 * size.y) + 0.5f);
        d = flat_pair((ring - r) * 0.85f, fabsf(p.y) - size.y, round);
    } else if (kind == 6) {  // a flat shape of thickness along z
        float scale = fminf(size.x, size.y);
        float side = -profile(s, (int)row[19], p.x / size.x, p.y / size.y) * scale * 0.7f;
        d = flat_pair(side, fabsf(p.z) - size.z, round);
    } else {  // turned about y
        float r = turned_radius(thing + 20, p.y / size.y) * size.x, side = (ring - r) * 0.75f;
        if (row[20] > 0) side = fabsf(side) - row[20];
        d = flat_pair(side, fabsf(p.y) - size.y, round);
    }
    return d;
}

// A solid's local point before it was twisted, bent and tapered.
FN V unbent(const float *thing, V p) {
    V q = p;
    if (thing[17] != 0) {
        float c = cosf(thing[17] * p.y), n = sinf(thing[17] * p.y);
        q = v(c * p.x - n * p.z, p.y, n * p.x + c * p.z);
    }
    q.x += thing[33] * p.y * p.y;
    float wide = 1.0f / fmaxf(1 + thing[18] * p.y, 0.3f);
    q.x *= wide, q.z *= wide;
    return q;
}

// Lumps, folds and fur move a surface whose distance is `total`; far from it they only shorten the distance.
FN float roughened(const float *thing, V p, float total) {
    if (thing[15] > 0) {
        float f = thing[16];
        total += thing[15] * (sinf(f * p.x + 1.3f) * sinf(f * p.y + thing[40]) * sinf(f * p.z + 0.7f) +
                              0.5f * sinf(2.3f * f * p.x + p.z * f) * sinf(1.9f * f * p.y - p.x * f));
    }
    if (thing[36] > 0 && total < 3 * thing[36]) {
        float f = thing[37], crease = noise(v(p.x * f + thing[40], p.y * f * thing[38], p.z * f));
        crease = 1 - fabsf(2 * crease - 1);
        total = (total + thing[36] * (crease * crease - 0.3f)) / (1 + 1.5f * thing[36] * f);
    }
    if (thing[34] > 0) {
        if (total > 3 * thing[34]) return total - thing[34];
        float f = thing[35];
        V strand = v(p.x * f, p.y * f * thing[39] + thing[40], p.z * f);
        total = (total - thing[34] * noise(strand)) / (1 + 0.8f * thing[34] * f);
    }
    return total;
}

// Distance to a solid at a local point, and the primitive that is nearest.
FN float field(const Tables &s, const float *thing, const float *rows, V p, int *nearest) {
    V q = unbent(thing, p);
    float total = 1e3f, least = 1e3f, blend = thing[14];
    int count = (int)thing[13];
    *nearest = 0;
    for (int k = 0; k < count; k++) {
        float d = primitive(s, thing, rows + k * PRIMITIVE, q);
        if (d < least) least = d, *nearest = k;
        float h = fmaxf(blend - fabsf(d - total), 0.0f) / blend;
        total = fminf(d, total) - h * h * blend * 0.25f;
    }
    return roughened(thing, p, total);
}

// Whether a ray meets a sphere round a solid, and the stretch of it inside.
FN bool enters(const float *thing, V from, V way, float *start, float *end) {
    V c = from - at(thing);
    float b = dot(c, way), d = b * b - dot(c, c) + thing[12] * thing[12];
    if (d <= 0) return false;
    d = sqrtf(d);
    *start = fmaxf(-b - d, 0.0f), *end = -b + d;
    return *end > 0;
}

struct Hit {
    float distance;
    int thing, primitive;  // thing -1 nothing, -2 floor, -3 and -4 walls
    V normal, local, local_normal;
};

FN const float *thing_at(const Tables &s, int scene, int k) {
    return s.things + ((int64_t)scene * s.count + k) * THING;
}
FN const float *rows_at(const Tables &s, int scene, int k) {
    return s.primitives + ((int64_t)scene * s.count + k) * PRIMITIVES * PRIMITIVE;
}

FN float march(const Tables &s, const float *thing, const float *rows, V from, V way, float t, float end, int *which) {
    float d = 0;
    for (int step = 0; step < 56 && t < end; step++) {
        d = field(s, thing, rows, from + way * t, which);
        if (d < 4e-4f * t + 1e-4f) return t;
        t += d * 0.85f;
    }
    return t < end && d < 4e-3f * t ? t : -1.0f;
}

FN V gradient(const Tables &s, const float *thing, const float *rows, V p, float e) {
    int k;
    V a = v(1, -1, -1), b = v(-1, -1, 1), c = v(-1, 1, -1), d = v(1, 1, 1);
    return unit(a * field(s, thing, rows, p + a * e, &k) + b * field(s, thing, rows, p + b * e, &k) +
                c * field(s, thing, rows, p + c * e, &k) + d * field(s, thing, rows, p + d * e, &k));
}

FN void meet_plane(Hit *hit, V from, V way, V normal, float offset, int code) {
    float toward = dot(normal, way), t = (offset - dot(normal, from)) / toward;
    if (toward < -1e-5f && t > 0 && t < hit->distance) hit->distance = t, hit->thing = code, hit->normal = normal;
}

// The nearest thing along a ray; counts in `drawn`, where given, every solid met, covered or not.
FN Hit trace(const Tables &s, int scene, V from, V way, int *drawn) {
    const float *view = s.views + scene * VIEW;
    Hit hit = {1e3f, -1, 0, v(0, 1, 0), v(0, 0, 0), v(0, 1, 0)};
    meet_plane(&hit, from, way, v(0, 1, 0), 0, -2);
    if (view[13] > 0) meet_plane(&hit, from, way, at(view + 14), view[17], -3);
    if (view[13] > 1) meet_plane(&hit, from, way, at(view + 18), view[21], -4);
    for (int k = 0; k < s.count; k++) {
        const float *thing = thing_at(s, scene, k), *rows = rows_at(s, scene, k);
        float start, end;
        if (thing[32] < 0.5f || !enters(thing, from, way, &start, &end)) continue;
        if (!drawn && start > hit.distance) continue;
        int which;
        V local = unturn(thing + 3, from - at(thing)), direction = unturn(thing + 3, way);
        float t = march(s, thing, rows, local, direction, start, end, &which);
        if (t < 0) continue;
#ifdef __CUDACC__
        if (drawn) atomicAdd(drawn + k + 1, 16);
#else
        if (drawn) drawn[k + 1] += 16;
#endif
        if (t < hit.distance) hit.distance = t, hit.thing = k, hit.primitive = which, hit.local = local + direction * t;
    }
    if (hit.thing >= 0) {
        const float *thing = thing_at(s, scene, hit.thing), *rows = rows_at(s, scene, hit.thing);
        hit.local_normal = gradient(s, thing, rows, hit.local, 1e-3f * hit.distance + 2e-4f);
        hit.normal = turn(thing + 3, hit.local_normal);
    }
    return hit;
}

// How much of a light at `reach` along `way` arrives, 0 to 1; `sharp` is large for a small light.
FN float lit(const Tables &s, int scene, V from, V way, float reach, float sharp) {
    float light = 1;
    for (int k = 0; k < s.count && light > 0.02f; k++) {
        const float *thing = thing_at(s, scene, k), *rows = rows_at(s, scene, k);
        float t, end;
        if (thing[32] < 0.5f || !enters(thing, from, way, &t, &end)) continue;
        end = fminf(end, reach);
        V local = unturn(thing + 3, from - at(thing)), direction = unturn(thing + 3, way);
        int which;
        t = fmaxf(t, 0.015f);
        for (int step = 0; step < 20 && t < end; step++) {
            float d = field(s, thing, rows, local + direction * t, &which);
            light = fminf(light, 0.5f + 0.5f * sharp * d / t);
            if (light <= 0) break;
            t += fmaxf(fabsf(d) * 0.9f, 0.02f);
        }
    }
    light = clamp01(light);
    return light * light * (3 - 2 * light);
}

// How open the surroundings of a point are, 0 to 1, by the distance to solids a little off the surface.
FN float openness(const Tables &s, int scene, V p, V normal, float reach) {
    float open = 1;
    V q = p + normal * reach;
    for (int k = 0; k < s.count; k++) {
        const float *thing = thing_at(s, scene, k);
        if (thing[32] < 0.5f || length(q - at(thing)) > thing[12] + reach) continue;
        int which;
        float d = field(s, thing, rows_at(s, scene, k), unturn(thing + 3, q - at(thing)), &which);
        open *= 0.3f + 0.7f * clamp01(d / reach);
    }
    return open * (0.6f + 0.4f * clamp01(q.y / reach));
}

// Light from far away in a direction: sky over ground, a texture as surroundings, and lamps.
FN V surroundings(const Tables &s, const float *view, V way, float level) {
    float up = clamp01(0.5f + way.y * (1.5f + view[51] * 4));
    V colour = mix(at(view + 31) * 1.2f, mix(at(view + 39), at(view + 36), clamp01(way.y * 1.5f)), up);
    float across = atan2f(way.x, way.z) * 0.95f;
    V seen = texel(s, (int)view[42], across, 0.7f - way.y * 1.5f, level);
    colour = mix(colour, seen * seen * length(colour) * 0.9f, view[43]);
    float lamp = clamp01((sinf(across * view[52] + view[53]) - 0.8f) * 12) * clamp01((way.y - view[54]) * 12) *
                 clamp01((view[54] + 0.35f - way.y) * 12);
    return colour + at(view + 25) * (lamp * view[55]);
}

struct Look {
    V colour;
    int part;
    const float *material;
    V normal;
};

// Two coordinates on a surface, by the axis its normal is nearest to.
FN void unfold(V p, V n, float *x, float *y) {
    float a = fabsf(n.x), b = fabsf(n.y), c = fabsf(n.z);
    if (b > a && b > c) *x = p.x, *y = p.z;
    else if (a > c) *x = p.z, *y = p.y;
    else *x = p.x, *y = p.y;
}

FN V painted(const Tables &s, const float *m, float x, float y, float level) {
    float c = cosf(m[11]), n = sinf(m[11]);
    V seen = texel(s, (int)m[0], (c * x - n * y) * m[1] + m[14], (n * x + c * y) * m[1] * m[15] + 0.37f * m[14], level);
    V even = at(m + 2);
    V colour = mix(even, (seen * 0.75f + even * 0.25f) * m[13], m[5]);
    return colour * colour;  // from the display's curve to light, nearly
}

// Colour and part of what a ray met.
FN Look look(const Tables &s, int scene, const Hit &hit, V place, V way) {
    const float *view = s.views + scene * VIEW;
    Look seen = {v(0, 0, 0), 0, s.surfaces + (scene * 3 - hit.thing - 2) * MATERIAL, hit.normal};
    V p = place, n = hit.normal;
    if (hit.thing >= 0) {
        int64_t row = (int64_t)scene * s.count + hit.thing;
        const float *materials = s.materials + row * MATERIALS * MATERIAL;
        const float *part = s.primitives + (row * PRIMITIVES + hit.primitive) * PRIMITIVE;
        seen.part = (int)part[17], seen.material = materials + (int)part[18] * MATERIAL;
        p = hit.local, n = hit.local_normal;
        if (is_inner(part, unbent(thing_at(s, scene, hit.thing), p)))
            seen.part += INNER, seen.material = materials + (int)part[22] * MATERIAL;
        for (int k = 0; k < DECALS; k++) {
            const float *decal = s.decals + (row * DECALS + k) * DECAL;
            int axis = (int)decal[1];
            float facing = axis == 0 ? n.x : axis == 1 ? n.y : n.z;
            if (decal[0] < 0.5f || facing * decal[2] < (decal[2] == 0 ? -1 : 0.55f)) continue;
            float x = axis == 0 ? p.z : p.x, y = axis == 1 ? p.z : p.y;
            x -= decal[3], y -= decal[4];
            float c = cosf(decal[7]), t = sinf(decal[7]);
            float u = (c * x + t * y) / decal[5], w = (c * y - t * x) / decal[6];
            if (profile(s, (int)decal[8], u, w) <= 0) continue;
            seen.part = (int)decal[9], seen.material = materials + (int)decal[10] * MATERIAL;
        }
    }
    float x, y;
    unfold(p, n, &x, &y);
    const float *m = seen.material;
    float slant = fmaxf(fabsf(dot(hit.normal, way)), 0.15f);
    float level = log2f(fmaxf(hit.distance * view[12] * 2 / s.side * m[1] * TEXTURE_SIDE / sqrtf(slant), 0.5f));
    seen.colour = painted(s, m, x, y, level);
    if (m[10] > 0) {  // relief of the texture
        float e = 1.5f / (TEXTURE_SIDE * m[1]), here = seen.colour.x + seen.colour.y;
        V a = painted(s, m, x + e, y, level), b = painted(s, m, x, y + e, level);
        float dx = (a.x + a.y - here) * m[10], dy = (b.x + b.y - here) * m[10];
        V side = unit(fabsf(hit.normal.y) > 0.9f ? v(1, 0, 0) : v(hit.normal.z, 0, -hit.normal.x));
        V other = v(hit.normal.y * side.z - hit.normal.z * side.y, hit.normal.z * side.x - hit.normal.x * side.z,
                    hit.normal.x * side.y - hit.normal.y * side.x);
        seen.normal = unit(hit.normal - side * dx - other * dy);
    }
    return seen;
}

// Light that comes to the eye along a ray, before the display's curve.
FN V shade(const Tables &s, int scene, const Hit &hit, V from, V way, int *part) {
    const float *view = s.views + scene * VIEW;
    *part = 0;
    if (hit.thing == -1) return surroundings(s, view, way, 0);
    V place = from + way * hit.distance;
    Look seen = look(s, scene, hit, place, way);
    *part = seen.part;
    const float *m = seen.material;
    V normal = seen.normal, toward = at(view + 22);
    float reach = 1e3f, fall = 1;
    if (view[47] > 0) {  // a lamp nearby instead of the sun
        V path = at(view + 48) - place;
        reach = length(path), toward = path * (1 / reach);
        fall = view[47] / (0.3f * view[47] + reach * reach);
    }
    float facing = dot(normal, toward), light = 0;
    V start = place + hit.normal * (2e-3f * hit.distance + 2e-3f);
    if (facing > 0) light = fall * lit(s, scene, start, toward, reach, view[34]);
    float open = openness(s, scene, start, hit.normal, 0.12f) * openness(s, scene, start, hit.normal, 0.45f);
    V around = mix(at(view + 31), at(view + 28), 0.5f + 0.5f * normal.y) * open;
    around = around + at(view + 56) * (clamp01(dot(normal, at(view + 59))) * open);
    V colour = seen.colour * (around + at(view + 25) * (light * fmaxf(facing, 0.0f)));
    V half = unit(toward - way), back = way - normal * (2 * dot(way, normal));
    V tint = mix(v(1, 1, 1), seen.colour, m[9]);
    float edge = 1 - clamp01(-dot(normal, way));
    float mirror = clamp01(m[8] + (1 - m[8]) * edge * edge * edge * edge * fminf(m[6], 1.0f) * 0.6f);
    float gloss = m[6] * powf(clamp01(dot(normal, half)), m[7]) * (facing > 0 ? 1 : 0);
    V reflected = surroundings(s, view, unit(back), fmaxf(4.5f - 0.5f * log2f(m[7] + 1), 0.0f)) * (0.4f + 0.6f * open);
    colour = colour * (1 - mirror * (0.5f + 0.5f * m[9])) + reflected * tint * mirror;
    colour = colour + at(view + 25) * tint * (gloss * light) + seen.colour * m[12];
    float mist = 1 - expf(-hit.distance * view[45]);
    return mix(colour, at(view + 39), mist);
}

FN V ray(const float *view, int side, float x, float y) {
    float u = (2 * x / side - 1) * view[12] * view[62], w = (1 - 2 * y / side) * view[12];
    return unit(at(view + 9) + at(view + 3) * u + at(view + 6) * w);
}

FN void put(const Tables &s, int scene, int x, int y, V colour, float *images) {
    float exposure = s.views[scene * VIEW + 44], c[3] = {colour.x, colour.y, colour.z};
    for (int k = 0; k < 3; k++) {
        float e = fmaxf(c[k], 0.0f) * exposure;
        e = e * (1 + e * 0.15f) / (1 + e * 0.9f);  // the bright end saturates softly
        images[((int64_t)(scene * 3 + k) * s.side + y) * s.side + x] = powf(clamp01(e * 1.35f), 1 / 2.1f);
    }
}

struct Pictures {
    float *images, *depth;
    uint8_t *layers, *parts;
    int *drawn;  // [scenes, count + 1]
};

FN void first_sample(const Tables &s, const Pictures &out, int scene, int x, int y) {
    const float *view = s.views + scene * VIEW;
    V way = ray(view, s.side, x + 0.5f, y + 0.5f);
    bool counted = x % 4 == 1 && y % 4 == 1;
    Hit hit = trace(s, scene, at(view), way, counted ? out.drawn + scene * (s.count + 1) : nullptr);
    int part;
    V colour = shade(s, scene, hit, at(view), way, &part);
    int64_t cell = ((int64_t)scene * s.side + y) * s.side + x;
    out.layers[cell] = hit.thing >= 0 ? hit.thing + 1 : 0;
    out.parts[cell] = part;
    out.depth[cell] = fminf(hit.distance, 100.0f);
    put(s, scene, x, y, colour, out.images);
}

// Three more rays where the neighbours show something else, so that edges are smooth.
FN void smooth_edges(const Tables &s, const Pictures &out, int scene, int x, int y) {
    int64_t cell = ((int64_t)scene * s.side + y) * s.side + x;
    int own = out.layers[cell] * 64 + out.parts[cell];
    bool edge = false;
    for (int k = 0; k < 4; k++) {
        int i = x + (k == 0) - (k == 1), j = y + (k == 2) - (k == 3);
        if (i < 0 || j < 0 || i >= s.side || j >= s.side) continue;
        int64_t other = ((int64_t)scene * s.side + j) * s.side + i;
        edge |= own != out.layers[other] * 64 + out.parts[other];
    }
    if (!edge) return;
    const float *view = s.views + scene * VIEW;
    const float shift[4][2] = {{0.12f, 0.37f}, {0.63f, 0.12f}, {0.88f, 0.63f}, {0.37f, 0.88f}};
    V total = v(0, 0, 0);
    int part;
    for (int k = 0; k < 4; k++) {
        V way = ray(view, s.side, x + shift[k][0], y + shift[k][1]);
        V c = shade(s, scene, trace(s, scene, at(view), way, nullptr), at(view), way, &part);
        total = total + v(fminf(c.x, 2.0f), fminf(c.y, 2.0f), fminf(c.z, 2.0f)) * 0.25f;
    }
    put(s, scene, x, y, total, out.images);
}

#ifdef __CUDACC__
__global__ void __launch_bounds__(128) draw(Tables s, Pictures out, bool again) {
    int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 8 + threadIdx.y;
    if (x >= s.side || y >= s.side) return;
    if (again) smooth_edges(s, out, blockIdx.z, x, y);
    else first_sample(s, out, blockIdx.z, x, y);
}
#endif

extern "C" int render(const Tables *s, const Pictures *out, void *stream) {
#ifdef __CUDACC__
    dim3 block(16, 8), grid((s->side + 15) / 16, (s->side + 7) / 8, s->scenes);
    draw<<<grid, block, 0, (cudaStream_t)stream>>>(*s, *out, false);
    draw<<<grid, block, 0, (cudaStream_t)stream>>>(*s, *out, true);
    return (int)cudaGetLastError();
#else
    for (int again = 0; again < 2; again++)
        for (int scene = 0; scene < s->scenes; scene++)
            for (int y = 0; y < s->side; y++)
                for (int x = 0; x < s->side; x++)
                    if (again) smooth_edges(*s, *out, scene, x, y);
                    else first_sample(*s, *out, scene, x, y);
    return 0;
#endif
}
