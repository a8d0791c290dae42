// SPDX-License-Identifier: Apache-2.0

pub(crate) fn nearest_rank(count: usize, per_cent: usize) -> usize {
    (count * per_cent).div_ceil(100).max(1) - 1
}

pub(crate) fn percentile<T: Copy>(sorted: &[T], per_cent: usize) -> Option<T> {
    sorted.get(nearest_rank(sorted.len(), per_cent)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentile_follows_the_nearest_rank() {
        let sorted: Vec<u32> = (1..=200).collect();
        let of = |per_cent| percentile(&sorted, per_cent);
        assert_eq!([0, 1, 50, 99, 100].map(of), [1, 2, 100, 198, 200].map(Some));
        assert_eq!((percentile(&[7, 9], 50), percentile(&[7, 9], 51)), (Some(7), Some(9)));
        assert_eq!(percentile::<u32>(&[], 50), None);
    }
}
