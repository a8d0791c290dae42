//! lightloom: tables, plots and the self-contained report page.
