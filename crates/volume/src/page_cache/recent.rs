//! The order in which frames were used last: a doubly linked list in two arrays.

/// Frames from the one that was used last to the one that was used longest ago.
#[derive(Default)]
pub(super) struct RecentFrames {
    /// For each frame its neighbours, `(newer, older)`. The list is a ring: newer than the newest is the oldest.
    links: Vec<(usize, usize)>,
    newest: usize,
}

impl RecentFrames {
    /// Another frame, the newest.
    pub fn add(&mut self) {
        let frame = self.links.len();
        self.links.push((frame, frame));
        if frame > 0 {
            self.put_before_newest(frame);
        }
        self.newest = frame;
    }

    /// There is one frame at least.
    pub fn oldest(&self) -> usize {
        self.links[self.newest].0
    }

    /// Makes a frame the newest.
    pub fn touch(&mut self, frame: usize) {
        if frame != self.newest {
            self.take_out(frame);
            self.put_before_newest(frame);
            self.newest = frame;
        }
    }

    /// Makes a frame the oldest.
    pub fn put_last(&mut self, frame: usize) {
        if frame == self.newest {
            // In a ring the newest becomes the oldest when the next one leads.
            self.newest = self.links[frame].1;
        } else {
            self.take_out(frame);
            self.put_before_newest(frame);
        }
    }

    fn take_out(&mut self, frame: usize) {
        let (newer, older) = self.links[frame];
        self.links[newer].1 = older;
        self.links[older].0 = newer;
    }

    /// Between the oldest and the newest.
    fn put_before_newest(&mut self, frame: usize) {
        let oldest = self.links[self.newest].0;
        self.links[frame] = (oldest, self.newest);
        self.links[oldest].1 = frame;
        self.links[self.newest].0 = frame;
    }
}
