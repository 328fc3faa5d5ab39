A pianist of ninety-four years gave a concert in the town hall on Sunday. Edith Sommer played Bach for an hour without notes.

She began lessons at the age of five. The hall was full, and people stood in the street to listen. She plans another concert in May.

@highlight

Pianist, 94, plays Bach for an hour without notes

@highlight

Edith Sommer plans another concert in May
