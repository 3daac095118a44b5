//! Asks the filters of all runs for several keys at once, so that memory is waited for once.

use super::super::ribbon::Question;
use super::super::run::Run;
use super::super::view::View;
use super::PendingKey;

/// Number of keys that a filter is asked for together; meanwhile the lines of the next filter are fetched.
pub(super) const TOGETHER: usize = u32::BITS as usize;

/// Asks the filters of all runs for several keys at once, so that memory is waited for once: while the first columns of
/// one run's filters are read, those of the next run and the other columns of the run before are being fetched.
pub(super) fn ask_filters(view: &View, asking: &mut [PendingKey<'_>]) {
    let mut questions = [Question::default(); TOGETHER];
    // start slots for the run before, this run and the next run
    let mut starts = [[0; TOGETHER]; 3];
    for some in asking.chunks_mut(TOGETHER) {
        let oldest = some.iter().map(|asked| asked.from).min().unwrap_or(0);
        let Some(run) = view.runs.get(oldest) else {
            continue;
        };
        for (asked, question) in some.iter().zip(&mut questions) {
            *question = Question::new(asked.hash);
        }
        let questions = &questions[..some.len()];
        seek(run, questions, &mut starts[oldest % 3]);
        let mut before = 0;
        for number in oldest..=view.runs.len() {
            if let Some(newer) = view.runs.get(number + 1) {
                seek(newer, questions, &mut starts[(number + 1) % 3]);
            }
            let mut near = 0;
            if let Some(run) = view.runs.get(number) {
                let starts = &starts[number % 3];
                for (place, (question, asked)) in questions.iter().zip(&*some).enumerate() {
                    let may = run.near(question, starts[place]) & (asked.from <= number);
                    near |= u32::from(may) << place;
                }
                places(near).for_each(|place| run.prefetch_far(&questions[place], starts[place]));
            }
            for place in places(before) {
                let start = starts[(number - 1) % 3][place];
                if view.runs[number - 1].far(&questions[place], start) {
                    some[place].runs |= 1 << (number - 1);
                }
            }
            before = near;
        }
    }
}

/// Writes the slot where each question begins in the filters of `run` to `starts`.
fn seek(run: &Run, questions: &[Question], starts: &mut [u32]) {
    for (question, start) in questions.iter().zip(starts) {
        *start = run.seek(question);
    }
}

/// The positions of the set bits.
fn places(mut bits: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let place = bits.trailing_zeros() as usize;
        bits &= bits.wrapping_sub(1);
        (place < TOGETHER).then_some(place)
    })
}
