Beekeepers have put 200 hives on the roofs of the capital. The bees find more flowers there than in the fields around it.

Each hive gives thirty kilograms of honey a year. Neighbours were afraid at first. Now many ask for a jar.

@highlight

200 beehives on the roofs of the capital

@highlight

Each gives thirty kilograms of honey a year
