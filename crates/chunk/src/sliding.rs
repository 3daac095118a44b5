//! The first window whose signature matches, searched at several places side by side.
//!
//! A signature that slides waits for itself at every byte: some eight cycles for a table lookup, where the work would
//! take two. Signatures of places apart do not wait for each other. So a block is searched in lanes that follow one
//! another in the data; all but the first begin with the window before them.

/// Bytes in a window of [`rabin`](crate::rabin) and of [`inc_k`](crate::inc_k).
pub const WINDOW: usize = 48;
const LANES: usize = 4;
/// Positions a lane searches. Longer lanes begin less often, but a match ends the search with more work done in vain.
const LANE: usize = 256;

/// A signature of the last [`WINDOW`] bytes.
pub trait Sliding: Copy {
    /// The signature of no bytes.
    const EMPTY: Self;

    /// Appends a byte while there are fewer than a window.
    fn append(&mut self, newest: u8);

    /// Appends a byte and removes the oldest one.
    fn slide(&mut self, oldest: u8, newest: u8);
}

/// The first position in `from..to` whose byte ends a window with a signature that is `wanted`; at least a window lies
/// before `from`.
#[inline]
pub fn first_match<S: Sliding>(
    data: &[u8],
    from: usize,
    to: usize,
    wanted: impl Fn(S) -> bool,
) -> Option<usize> {
    let mut sum = S::EMPTY;
    data[from - WINDOW..from]
        .iter()
        .for_each(|byte| sum.append(*byte));
    // Every position with the window before it, which the byte of the position pushes out one by one.
    let mut rest = &data[from - WINDOW..to];
    while let Some(block) = rest.first_chunk::<{ WINDOW + LANES * LANE }>() {
        if let Some(at) = match_in(block, &mut sum, &wanted) {
            return Some(to - (rest.len() - WINDOW) + at);
        }
        rest = &rest[LANES * LANE..];
    }
    let begin = to - (rest.len() - WINDOW);
    alone(rest, sum, wanted).map(|at| begin + at)
}

/// The same search as [`first_match`], position by position from signature `sum` on; positions count from behind the
/// first window.
fn alone<S: Sliding>(data: &[u8], mut sum: S, wanted: impl Fn(S) -> bool) -> Option<usize> {
    data.iter()
        .zip(&data[WINDOW..])
        .position(|(oldest, newest)| {
            sum.slide(*oldest, *newest);
            wanted(sum)
        })
}

/// The same search as [`alone`], in lanes. `sum` enters with the signature of the first window, and leaves with that of
/// the last where nothing matches.
#[inline(always)]
fn match_in<S: Sliding>(
    block: &[u8; WINDOW + LANES * LANE],
    sum: &mut S,
    wanted: &impl Fn(S) -> bool,
) -> Option<usize> {
    let lanes: [&[u8; WINDOW + LANE]; LANES] = core::array::from_fn(|lane| {
        block[lane * LANE..]
            .first_chunk()
            .expect("within the block")
    });
    let mut sums = [S::EMPTY; LANES];
    for i in 0..WINDOW {
        for (sum, lane) in sums.iter_mut().zip(lanes).skip(1) {
            sum.append(lane[i]);
        }
    }
    sums[0] = *sum;
    for i in 0..LANE {
        for (sum, lane) in sums.iter_mut().zip(lanes) {
            sum.slide(lane[i], lane[i + WINDOW]);
        }
        for lane in 0..LANES {
            if wanted(sums[lane]) {
                // Lanes before this one may match further on.
                let before = (0..lane).find_map(|lane| {
                    let at = alone(&lanes[lane][i + 1..], sums[lane], wanted)?;
                    Some(lane * LANE + i + 1 + at)
                });
                return before.or(Some(lane * LANE + i));
            }
        }
    }
    *sum = sums[LANES - 1];
    None
}
