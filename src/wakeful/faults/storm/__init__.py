"""Everything at once: workers, a scheduler, a broker and a database at work, and all of them failing at random."""
