//! Windows of a grid of tokens.

/// Tokens, row-major on a grid that is divided into windows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grid {
    /// `[height, width]` of the grid.
    pub(super) size: [usize; 2],
    /// `[height, width]` of a window; windows at the bottom and at the right may reach beyond the grid.
    pub(super) window: [usize; 2],
}

impl Grid {
    /// A grid that is one window.
    pub(super) fn whole(size: [usize; 2]) -> Grid {
        Grid { size, window: size.map(|length| length.max(1)) }
    }

    /// Windows along each axis.
    fn windows(&self) -> [usize; 2] {
        [0, 1].map(|axis| self.size[axis].div_ceil(self.window[axis]))
    }

    /// Number of windows.
    pub(super) fn window_count(&self) -> usize {
        let [down, across] = self.windows();
        down * across
    }

    /// Window `number`, counted row-major.
    pub(super) fn region(&self, number: usize) -> Region {
        let across = self.windows()[1];
        let origin = [number / across * self.window[0], number % across * self.window[1]];
        let inside = [0, 1].map(|axis| self.window[axis].min(self.size[axis] - origin[axis]));
        Region { origin, inside, window: self.window, grid_width: self.size[1] }
    }
}

/// One window of a grid. Positions `[y, x]` count from its corner.
#[derive(Clone, Copy, Debug)]
pub(super) struct Region {
    /// Its corner in the grid.
    origin: [usize; 2],
    /// `[height, width]` of the part inside the grid.
    inside: [usize; 2],
    /// `[height, width]` with padding.
    window: [usize; 2],
    grid_width: usize,
}

impl Region {
    /// Tokens inside the grid.
    pub(super) fn tokens(&self) -> usize {
        self.inside[0] * self.inside[1]
    }

    /// Positions, including those beyond the grid.
    pub(super) fn positions(&self) -> usize {
        self.window[0] * self.window[1]
    }

    /// Position of a token of the window, counted row-major among those inside the grid.
    #[inline(always)]
    pub(super) fn position(&self, number: usize) -> [usize; 2] {
        let width = self.inside[1];
        if number < width { [0, number] } else { [number / width, number % width] }
    }

    /// The positions from that of token `number` on.
    #[inline(always)]
    pub(super) fn walk(&self, number: usize) -> Walk {
        Walk { next: self.position(number), width: self.inside[1] }
    }

    /// Row-major index of a position, counting those beyond the grid.
    pub(super) fn index(&self, [y, x]: [usize; 2]) -> usize {
        y * self.window[1] + x
    }

    /// The position of a row-major index.
    pub(super) fn position_at(&self, index: usize) -> [usize; 2] {
        [index / self.window[1], index % self.window[1]]
    }

    /// The token at a position inside the grid.
    #[inline(always)]
    pub(super) fn token(&self, [y, x]: [usize; 2]) -> usize {
        debug_assert!(y < self.inside[0] && x < self.inside[1]);
        (self.origin[0] + y) * self.grid_width + self.origin[1] + x
    }

    /// Numbers of positions inside the grid and beyond it, from a position to the end of its row.
    pub(super) fn rest_of_row(&self, [y, x]: [usize; 2]) -> [usize; 2] {
        let width = if y < self.inside[0] { self.inside[1] } else { 0 };
        let inside = width.saturating_sub(x);
        [inside, self.window[1] - x - inside]
    }
}

/// Positions of consecutive tokens of a window, without a division for each.
pub(super) struct Walk {
    next: [usize; 2],
    width: usize,
}

impl Walk {
    /// The next position.
    #[inline(always)]
    pub(super) fn step(&mut self) -> [usize; 2] {
        let position = self.next;
        let [y, x] = position;
        self.next = if x + 1 < self.width { [y, x + 1] } else { [y + 1, 0] };
        position
    }
}
