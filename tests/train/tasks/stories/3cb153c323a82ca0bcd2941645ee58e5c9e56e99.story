The school in Brenner has four pupils and one teacher. The council wanted to close it to save money.

Parents collected 900 signatures, three times the number of villagers. The council has changed its mind. The school stays open for at least five years.

@highlight

School with four pupils stays open

@highlight

Parents collected 900 signatures
