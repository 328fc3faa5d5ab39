Police have arrested a man who sold tickets to a museum that does not exist. He had printed maps and wore a uniform.

More than fifty tourists paid twelve dollars each. One of them asked a policeman for the way. The man has confessed.

@highlight

Man arrested for tickets to a museum that does not exist

@highlight

More than fifty tourists paid him
