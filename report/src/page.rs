//! One self-contained page about a design, and the same as Markdown and CSV.
