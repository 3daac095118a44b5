//! The pages of one call on a device that does several things at once.

use super::FlashModel;

/// The pages of one call on their way to the channels, in order.
pub(super) struct ChannelQueue {
    depth: usize,
    /// Time at which each channel becomes free, in microseconds.
    free: Vec<f64>,
    /// Times at which the pages under way are done, in no order.
    done: Vec<f64>,
    end: f64,
}

impl ChannelQueue {
    pub(super) fn new(model: &FlashModel) -> Self {
        Self {
            depth: model.queue_depth.max(1) as usize,
            free: vec![0.0; model.channels.max(1) as usize],
            done: Vec::new(),
            end: 0.0,
        }
    }

    pub(super) fn put(&mut self, channel: u32, us: f64) {
        let mut now = 0.0;
        if self.done.len() == self.depth {
            let first = (0..self.depth)
                .min_by(|a, b| self.done[*a].total_cmp(&self.done[*b]))
                .expect("a depth of at least 1");
            now = self.done.swap_remove(first);
        }
        let free = &mut self.free[channel as usize];
        *free = free.max(now) + us;
        self.end = self.end.max(*free);
        self.done.push(*free);
    }

    /// Time at which all pages are done, in microseconds from the call.
    pub(super) fn end(&self) -> f64 {
        self.end
    }
}
