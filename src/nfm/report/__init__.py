"""From evaluations on disk to what people read: paired comparisons, and one self-contained page."""
