//! Lookups at random, in turns with the disk's own reads.

use std::time::Duration;

use onefold_io::Dir;
use onefold_papers::workload::Order;

use super::{Asking, Bench, print_value};
use crate::index::Error;
use crate::index::disk::{DEPTHS, Yardstick};

/// Number of turns in which both are measured.
const TURNS: u32 = 10;

impl Bench<'_> {
    /// Measures lookups at random and the disk's own reads in turns: a shared disk changes its rate from second to
    /// second.
    pub(super) fn random_beside_the_disk(&mut self, dir: &dyn Dir) -> Result<(), Error> {
        let mut asking = Asking::new(Order::Random, self.keys);
        let mut disk = Yardstick::new(dir)?;
        let turn = Duration::from_secs(self.args.seconds) / TURNS;
        let (mut ratios, mut reads) = (DEPTHS.map(|_| Vec::new()), DEPTHS.map(|_| 0.0));
        for number in 0..u64::from(TURNS) {
            let mut rates = [0.0; DEPTHS.len()];
            for (depth, rate) in DEPTHS.iter().zip(&mut rates) {
                *rate = disk.rate(*depth, turn, ((1 + number) << 32) + *depth as u64)?;
            }
            let (count, took) = (asking.count, asking.took);
            self.ask_for(&mut asking, turn)?;
            let asked = (asking.count - count) as f64 / (asking.took - took).as_secs_f64();
            for (place, rate) in rates.iter().enumerate() {
                ratios[place].push(asked / rate);
                reads[place] += rate / f64::from(TURNS);
            }
        }
        let cache = if self.args.cached { ", page cache" } else { "" };
        for (depth, rate) in DEPTHS.iter().zip(reads) {
            let what = format!("the disk itself, {depth} at once");
            print_value(&what, rate, 0, &format!("{}{cache}", disk.words(*depth)));
        }
        let goal = format!("≥ 0.8 × the disk at {}, in turns with it", DEPTHS[0]);
        self.enter_lookups("random", &asking, &goal);
        for (depth, mut ratios) in DEPTHS.iter().zip(ratios) {
            ratios.sort_by(f64::total_cmp);
            println!(
                "present at random / disk, {depth} at once: {:.2}, in turns of {:.2} s {:.2} to {:.2}",
                ratios[ratios.len() / 2],
                turn.as_secs_f64(),
                ratios[0],
                ratios[ratios.len() - 1]
            );
        }
        Ok(())
    }
}
