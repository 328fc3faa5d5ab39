An old mill in Aldersted has been turned into flats for students. Forty rooms look out on the river.

The wheel still turns and makes power for the lifts. Rent is half of what students pay in the city. The first moved in on Saturday.

@highlight

Old mill becomes flats for forty students

@highlight

Its wheel makes power for the lifts
